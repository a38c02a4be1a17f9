// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limits of the symbol tables of one file, which any user may have written. debug/elf has no
// limits: it reads whole sections, which can be huge in a sparse file, and copies the name of each
// symbol. Chromium with all symbols, one of the largest programs, has about a million functions
// with 170 MiB of names.
const (
	maxFunctions  = 2 << 20
	maxSymbols    = 16 << 20 // symbols of all kinds; only functions are kept
	maxSymbolName = 16 << 10 // bytes; C++ has names of several KiB
	// maxAliases is the maximum number of functions at one address that are compared by name.
	maxAliases = 64
	// sectionSize is the size of elf.Section64 in a file.
	sectionSize = 64
)

// symbolTable holds the functions of an ELF file.
type symbolTable struct {
	functions []nativeFunction // by address
	names     []byte           // the string tables of the file
}

// nativeFunction is a function of native code.
type nativeFunction struct {
	address, size uint64
	name          uint32 // index in symbolTable.names
}

// bytes returns the size of the table in memory.
func (t *symbolTable) bytes() int64 {
	return int64(cap(t.names)) + int64(cap(t.functions))*int64(unsafe.Sizeof(nativeFunction{}))
}

// openRegular opens a file if it is a regular file. A path of a process can lead to a device, and
// opening a device can have effects, such as starting a watchdog.
func openRegular(path string) (*os.File, error) {
	handle, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = handle.Close() }()
	if info, err := handle.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, cmp.Or(err, fs.ErrInvalid)
	}
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", handle.Fd()), os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// readSymbols returns the functions of a file, or nil if the file has another hash or cannot be
// read. The table is empty if the file has no symbols or if they take more than most bytes.
func readSymbols(path, hash string, most int64) *symbolTable {
	f, err := openRegular(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	if got, err := hashOf(f, info.Size()); err != nil || hash != "" && got != hash {
		return nil
	}
	return parseSymbols(f, info.Size(), most)
}

// parseSymbols reads the sections .symtab and .dynsym of an ELF file for amd64 or arm64. It leaves
// out sections beyond the limits. The table takes at most most bytes.
func parseSymbols(r io.ReaderAt, size, most int64) *symbolTable {
	t := &symbolTable{}
	var header elf.Header64
	kind := elf.ELFMAG + string([]byte{byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)})
	if readAt(r, 0, &header) != nil || string(header.Ident[:elf.EI_VERSION]) != kind || header.Shentsize != sectionSize {
		return t
	}
	sections := make([]elf.Section64, header.Shnum) // programs have less than 65,280
	if readAt(r, header.Shoff, sections) != nil {
		return t
	}
	for _, kind := range []elf.SectionType{elf.SHT_DYNSYM, elf.SHT_SYMTAB} {
		at := slices.IndexFunc(sections, func(s elf.Section64) bool { return s.Type == uint32(kind) })
		if at < 0 || uint64(sections[at].Link) >= uint64(len(sections)) {
			continue
		}
		symbols, names := sections[at], sections[sections[at].Link]
		isIn := func(s elf.Section64) bool { // and is not compressed
			return s.Off <= uint64(size) && s.Size <= uint64(size)-s.Off && elf.SectionFlag(s.Flags)&elf.SHF_COMPRESSED == 0
		}
		if !isIn(symbols) || !isIn(names) || names.Type != uint32(elf.SHT_STRTAB) {
			continue
		}
		if before := *t; !t.add(r, most, symbols, names) {
			*t = before
		}
	}
	slices.SortFunc(t.functions, func(a, b nativeFunction) int {
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(a.name, b.name))
	})
	return t
}

// readAt reads little-endian data at an offset of a file.
func readAt(r io.ReaderAt, offset uint64, data any) error {
	return binary.Read(io.NewSectionReader(r, int64(offset), int64(binary.Size(data))), binary.LittleEndian, data)
}

// add adds the functions of a symbol table section with its string table. It returns false if not
// all could be added.
func (t *symbolTable) add(r io.ReaderAt, most int64, symbols, names elf.Section64) bool {
	if symbols.Size > maxSymbols*elf.Sym64Size || names.Size > uint64(max(most-t.bytes(), 0)) {
		return false
	}
	base := len(t.names)
	t.names = slices.Grow(t.names, int(names.Size))[:base+int(names.Size)]
	if n, _ := r.ReadAt(t.names[base:], int64(names.Off)); n < int(names.Size) {
		return false
	}
	in := bufio.NewReaderSize(io.NewSectionReader(r, int64(symbols.Off), int64(symbols.Size)), 256<<10)
	var s [elf.Sym64Size]byte // name, info, other, section, address, size
	for range symbols.Size / elf.Sym64Size {
		if _, err := io.ReadFull(in, s[:]); err != nil {
			return false
		}
		name, kind, section := binary.LittleEndian.Uint32(s[:]), elf.ST_TYPE(s[4]), binary.LittleEndian.Uint16(s[6:])
		if kind != elf.STT_FUNC && kind != elf.STT_GNU_IFUNC || section == uint16(elf.SHN_UNDEF) || uint64(name) >= names.Size {
			continue
		}
		if len(t.functions) == maxFunctions || t.bytes() > most {
			return false
		}
		t.functions = append(t.functions, nativeFunction{
			address: binary.LittleEndian.Uint64(s[8:]), size: binary.LittleEndian.Uint64(s[16:]), name: uint32(base) + name,
		})
	}
	return true
}

// at returns the name of the function at an address of the file, or "". If a function has several
// names, at returns the last, so that malloc precedes __libc_malloc. A function in assembly may
// have no size; it extends to the next function.
func (t *symbolTable) at(address uint64) string {
	after := sort.Search(len(t.functions), func(i int) bool { return t.functions[i].address > address })
	var name string
	var size uint64
	for i := after - 1; i >= max(0, after-maxAliases) && t.functions[i].address == t.functions[after-1].address; i-- {
		if f := t.functions[i]; i == after-1 || t.name(f) > name {
			name, size = t.name(f), f.size
		}
	}
	if after > 0 && (address-t.functions[after-1].address < size || size == 0 && after < len(t.functions)) {
		return name
	}
	return ""
}

// name returns the name of a function, or "" if the name is longer than maxSymbolName bytes.
func (t *symbolTable) name(f nativeFunction) string {
	text := t.names[f.name:min(len(t.names), int(f.name)+maxSymbolName)]
	return string(text[:max(0, bytes.IndexByte(text, 0))])
}

// hashOf returns the hash that the profiler uses to identify an executable,
// process.executable.build_id.htlhash of the semantic conventions. It is the SHA-256 of the first 4
// KiB, the last 4 KiB and the size, cut to 128 bits.
func hashOf(f io.ReaderAt, size int64) (string, error) {
	const part = 4096
	h := sha256.New()
	for _, from := range []int64{0, max(0, size-part)} {
		if _, err := io.Copy(h, io.NewSectionReader(f, from, part)); err != nil {
			return "", err
		}
	}
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(size)))
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}
