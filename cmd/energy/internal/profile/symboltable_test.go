// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// image is an ELF file with the sections null, .symtab, .strtab, .dynsym and .dynstr.
type image struct {
	header   elf.Header64
	sections [5]elf.Section64
	content  []byte // between header and section headers
}

const (
	symtab = 1 + iota
	strtab
	dynsym
	dynstr
)

// newImage returns an image with a function f at 0x1000 in .symtab, and g at 0x2000 in .dynsym.
func newImage() *image {
	m := &image{}
	copy(m.header.Ident[:], elf.ELFMAG+string([]byte{byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}))
	m.header.Version, m.header.Ehsize = uint32(elf.EV_CURRENT), uint16(binary.Size(m.header))
	m.header.Shentsize, m.header.Shnum = uint16(binary.Size(elf.Section64{})), uint16(len(m.sections))
	f := elf.Sym64{Name: 1, Info: byte(elf.STT_FUNC), Shndx: 1, Value: 0x1000, Size: 0x100}
	m.set(symtab, elf.SHT_SYMTAB, strtab, f)
	m.set(strtab, elf.SHT_STRTAB, 0, []byte("\x00f\x00"))
	f.Value = 0x2000
	m.set(dynsym, elf.SHT_DYNSYM, dynstr, f)
	m.set(dynstr, elf.SHT_STRTAB, 0, []byte("\x00g\x00"))
	return m
}

// set sets a section and its content.
func (m *image) set(index int, kind elf.SectionType, link uint32, content any) {
	s := &m.sections[index]
	s.Type, s.Link = uint32(kind), link
	s.Off, s.Size = uint64(binary.Size(m.header)+len(m.content)), uint64(binary.Size(content))
	m.content = append(m.content, encoded(content)...)
}

func encoded(data any) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, data) // a buffer takes everything
	return b.Bytes()
}

func (m *image) bytes() []byte {
	if m.header.Shoff == 0 {
		m.header.Shoff = uint64(binary.Size(m.header) + len(m.content))
	}
	return append(append(encoded(m.header), m.content...), encoded(m.sections)...)
}

// write writes the image to a sparse file of some size.
func (m *image) write(t *testing.T, size int64) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, m.bytes(), 0o600))
	if size > 0 {
		require.NoError(t, os.Truncate(path, size))
	}
	return path
}

func parsed(m *image) *symbolTable {
	content := m.bytes()
	return parseSymbols(bytes.NewReader(content), int64(len(content)), math.MaxInt64)
}

func TestBothSymbolTablesHaveFunctions(t *testing.T) {
	table := parsed(newImage())
	for address, want := range map[uint64]string{0: "", 0xfff: "", 0x1000: "f", 0x10ff: "f", 0x1100: "", 0x2001: "g", math.MaxUint64: ""} {
		assert.Equal(t, want, table.at(address), "%#x", address)
	}
}

func TestMalformedSectionsHaveNoFunctions(t *testing.T) {
	for name, change := range map[string]func(m *image){
		"more sections than the file":  func(m *image) { m.header.Shnum = 65_535 },
		"section headers beyond it":    func(m *image) { m.header.Shoff = 1 << 40 },
		"section headers at -1":        func(m *image) { m.header.Shoff = math.MaxUint64 },
		"other size of section header": func(m *image) { m.header.Shentsize = 1 },
		"32 bits":                      func(m *image) { m.header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS32) },
		"symbols beyond the file":      func(m *image) { m.sections[symtab].Off = 1 << 40 },
		"symbols of a size below 0":    func(m *image) { m.sections[symtab].Size = math.MaxUint64 },
		"names beyond the file":        func(m *image) { m.sections[strtab].Size = 1 << 40 },
		"names of an offset below 0":   func(m *image) { m.sections[strtab].Off = math.MaxUint64 - 1 },
		"names without content":        func(m *image) { m.sections[strtab].Type = uint32(elf.SHT_NOBITS) },
		"compressed symbols":           func(m *image) { m.sections[symtab].Flags = uint64(elf.SHF_COMPRESSED) },
		"compressed names":             func(m *image) { m.sections[strtab].Flags = uint64(elf.SHF_COMPRESSED) },
		"names in no section":          func(m *image) { m.sections[symtab].Link = 5 },
		"names in the symbols":         func(m *image) { m.sections[symtab].Link = symtab },
		"a name beyond the names":      func(m *image) { m.sections[strtab].Size = 1 },
		"a name without an end":        func(m *image) { m.set(strtab, elf.SHT_STRTAB, 0, []byte(strings.Repeat("f", maxSymbolName+1)+"\x00")) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newImage()
			change(m)
			assert.Empty(t, parsed(m).at(0x1000))
		})
	}
}

// allocated returns the bytes that a call allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestSparseSectionsAreNotRead(t *testing.T) {
	const huge = 40 << 30
	for name, section := range map[string]int{"symbols": symtab, "names": strtab} {
		t.Run(name, func(t *testing.T) {
			m := newImage()
			m.sections[section].Off, m.sections[section].Size = uint64(len(m.bytes())), huge/24*24
			path := m.write(t, huge+4096)
			assert.Less(t, allocated(func() { assert.Equal(t, "g", readSymbols(path, "", maxSymbolBytes).at(0x2000)) }), uint64(4<<20))
		})
	}
}

func TestSymbolsShareNames(t *testing.T) {
	const symbols, length = 10_000, 10_000
	m := newImage()
	m.set(strtab, elf.SHT_STRTAB, 0, []byte(strings.Repeat("f", length)+"\x00"))
	m.set(symtab, elf.SHT_SYMTAB, strtab, bytes.Repeat(encoded(elf.Sym64{Info: byte(elf.STT_FUNC), Shndx: 1, Value: 0x1000, Size: 1}), symbols))
	var table *symbolTable
	assert.Less(t, allocated(func() { table = parsed(m) }), uint64(symbols*length/10))
	assert.Len(t, table.at(0x1000), length)
}

func TestATableTakesAtMostTheGivenMemory(t *testing.T) {
	m := newImage()
	m.set(symtab, elf.SHT_SYMTAB, strtab, bytes.Repeat(encoded(elf.Sym64{Info: byte(elf.STT_FUNC), Shndx: 1}), 10_000))
	content := m.bytes()
	for most := range int64(1000) {
		table := parseSymbols(bytes.NewReader(content), int64(len(content)), most)
		require.LessOrEqual(t, table.bytes(), most+most/4+100, "the last growth of a slice")
	}
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "program")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	require.NoError(t, err)
	defer func() { _ = unix.Close(watch) }()
	_, err = unix.InotifyAddWatch(watch, fifo, unix.IN_OPEN)
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.Symlink(fifo, link))
	for _, path := range []string{fifo, link, "/dev/zero", t.TempDir(), "/no/such/file"} {
		assert.Nil(t, readSymbols(path, "", maxSymbolBytes), path)
	}
	_, err = unix.Read(watch, make([]byte, 1024))
	assert.ErrorIs(t, err, unix.EAGAIN, "no event")
}

func TestAFileThatIsReplacedWhileItIsReadHasNoFunctions(t *testing.T) {
	m := newImage()
	content := m.bytes()
	for length := range content {
		table := parseSymbols(bytes.NewReader(content[:length]), int64(len(content)), math.MaxInt64)
		require.Empty(t, table.functions, "section headers are the end of the file")
	}
}

func FuzzParseSymbols(f *testing.F) {
	f.Add(newImage().bytes(), uint64(0x1000))
	f.Fuzz(func(t *testing.T, content []byte, address uint64) {
		const most = 1 << 20
		table := parseSymbols(bytes.NewReader(content), int64(len(content)), most)
		require.Less(t, table.bytes(), int64(2*most))
		require.LessOrEqual(t, len(table.at(address)), maxSymbolName)
		for _, f := range table.functions {
			table.at(f.address)
		}
	})
}
