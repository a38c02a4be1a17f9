// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/internal/profiles"
)

// located returns samples of a process with a number of locations in the file "program", without
// functions.
func located(hash string, locations int) samples {
	s := newSamples()
	d := s.Dictionary()
	d.StringTable().Append("program", "process.executable.build_id.htlhash")
	mapping := d.MappingTable().AppendEmpty()
	mapping.SetFilenameStrindex(int32(d.StringTable().Len() - 2))
	if hash != "" {
		attribute := d.AttributeTable().AppendEmpty()
		attribute.SetKeyStrindex(int32(d.StringTable().Len() - 1))
		attribute.Value().SetStr(hash)
		mapping.AttributeIndices().Append(int32(d.AttributeTable().Len() - 1))
	}
	s.addAt("2147483647")
	stack := d.StackTable().At(int(sampleOf(s).StackIndex())).LocationIndices()
	stack.FromRaw(nil)
	for range locations {
		d.LocationTable().AppendEmpty().SetMappingIndex(1)
		stack.Append(int32(d.LocationTable().Len() - 1))
	}
	return s
}

// inTable returns symbols with one function, whose name is that of the table.
func inTable(name string) *symbols {
	table := &symbolTable{functions: []nativeFunction{{size: 1}}, names: []byte(name + "\x00")}
	s := newSymbols()
	s.files[file{name: "program"}] = table
	return s
}

func TestFunctionsOfNativeCodeAreNamed(t *testing.T) {
	m := newImage()
	m.set(strtab, elf.SHT_STRTAB, 0, []byte("\x00_ZN3app5threeEi\x00"))
	path := m.write(t, 0)
	hash, err := hashOf(bytes.NewReader(m.bytes()), int64(len(m.bytes())))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		hash    string
		address uint64
		want    string
	}{
		"C":                 {hash, 0x2001, "g"},
		"C++":               {hash, 0x1000, "app::three"},
		"without a hash":    {"", 0x2002, "g"},
		"another file":      {"00112233445566778899aabbccddeeff", 0x2000, "[program]"},
		"outside functions": {hash, 1 << 40, "[program]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := located(c.hash, 1)
			s.ResourceProfiles().At(0).Resource().Attributes().PutStr("process.executable.path", path)
			for location := range profiles.DictionaryOf(s.Profiles).Stack(sampleOf(s)) {
				location.SetAddress(c.address)
			}
			newSymbols().name(s.Profiles)
			stack := newEnergy().stack(profiles.DictionaryOf(s.Profiles), sampleOf(s))
			require.Len(t, stack, 1)
			assert.Equal(t, c.want, stack[0].Line[0].Function.Name)
			if strings.HasPrefix(c.want, "[") {
				assert.Equal(t, c.address, stack[0].Address)
			}
		})
	}
}

func sampleOf(s samples) pprofile.Sample {
	return s.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().At(0).Samples().At(0)
}

func TestANameIsNoLongerThanItNeedsToBe(t *testing.T) {
	mangled := "_ZN1AcvFvFvPiS0_E" // an operator that converts to a function of functions
	for i := range 18 {
		ref := strings.ToUpper(strconv.FormatInt(int64(i+1), 36))
		mangled += "FvS" + ref + "_S" + ref + "_E"
	}
	s := located("", 1)
	inTable(mangled + "EEv").name(s.Profiles)
	name := newEnergy().stack(profiles.DictionaryOf(s.Profiles), sampleOf(s))[0].Line[0].Function.Name
	assert.Contains(t, name, "A::operator void")
	assert.LessOrEqual(t, len(name), 1024)
}

func TestTheNamesThatABatchGetsAreBounded(t *testing.T) {
	s := located("", 2*maxNameBytes/maxName)
	inTable(strings.Repeat("a", maxSymbolName-1)).name(s.Profiles)
	all := 0
	for _, text := range s.Dictionary().StringTable().All() {
		all += len(text)
	}
	assert.Greater(t, all, maxNameBytes)
	assert.Less(t, all, maxNameBytes+2*maxName)
}

func TestFilesOfAProcessAreItsMappedFiles(t *testing.T) {
	s := newSamples()
	s.add(strconv.Itoa(os.Getpid()), "f")
	own := newSymbols()
	own.name(s.Profiles)
	exe, err := os.Executable()
	require.NoError(t, err)
	assert.True(t, slices.Contains(own.paths[filepath.Base(exe)], exe), own.paths)
}

func TestMappedFilesTakeABoundedMemory(t *testing.T) {
	of := newSymbols()
	for i := range 100 {
		for range 2 {
			of.notePath(1, fmt.Sprintf("/%d/lib.so", i))
		}
	}
	assert.Len(t, of.paths["lib.so"], maxPathsOfName)
	of.bytes = maxSymbolBytes/2 - 100_000
	long := strings.Repeat("/long", 800)
	for i := range 1000 {
		of.notePath(1, fmt.Sprint(long, i))
	}
	assert.Less(t, of.bytes, int64(maxSymbolBytes/2+2*len(long)))
}

func TestFunctionsHaveNoNamesIfTheFileSystemDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		of := newSymbols()
		of.paths = map[string][]string{"slow": {"/slow"}, "fast": {"/fast"}}
		of.read = func(path, _ string, _ int64) *symbolTable {
			if path == "/slow" {
				<-release
			}
			return &symbolTable{}
		}
		began := time.Now()
		assert.Nil(t, of.table(file{name: "slow"}))
		assert.Equal(t, readWithin, time.Since(began))
		assert.Nil(t, of.table(file{name: "fast"}), "one read at a time")
		assert.Equal(t, readWithin, time.Since(began), "no further wait")
		close(release)
		synctest.Wait()
		assert.NotNil(t, of.table(file{name: "fast", hash: "another"}))
	})
}

func TestSymbolsOfAllFilesTakeABoundedMemory(t *testing.T) {
	of := newSymbols()
	of.read = func(_, _ string, most int64) *symbolTable {
		if most < maxSymbolBytes/5 {
			return &symbolTable{}
		}
		return &symbolTable{names: make([]byte, maxSymbolBytes/5)}
	}
	for batch := range 3 {
		of.name(newSamples().Profiles)
		assert.Empty(t, of.files, "the next batch begins anew")
		for i := range 10 {
			name := fmt.Sprint(batch, " ", i)
			of.paths[name] = []string{"/" + name}
			of.table(file{name: name})
		}
		assert.InDelta(t, maxSymbolBytes/5*4, of.bytes, 10_000, "the fifth table does not fit")
	}
}
