// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"golang.org/x/sys/unix"
)

// program has a function with a name of C, and one with a name of C++.
const program = `int two(int i) { return i * 2; }
int _ZN3app5threeEi(int i) { return i * 3; }
int main(int n, char **v) { return two(n) + _ZN3app5threeEi(n); }
`

// compiled returns an executable and the addresses of its functions.
func compiled(t *testing.T) (path string, at map[string]uint64) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("lacks a C compiler")
	}
	dir := t.TempDir()
	path = filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(path+".c", []byte(program), 0o600))
	out, err := exec.Command(cc, "-O1", "-o", path, path+".c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	all, err := f.Symbols()
	require.NoError(t, err)
	at = map[string]uint64{}
	for _, s := range all {
		at[s.Name] = s.Value
	}
	return path, at
}

func TestFunctionsOfNativeCodeAreNamed(t *testing.T) {
	path, at := compiled(t)
	f, err := os.Open(path)
	require.NoError(t, err)
	info, err := f.Stat()
	require.NoError(t, err)
	hash, err := hashOf(f, info.Size())
	require.NoError(t, err)
	require.NoError(t, f.Close())
	for name, c := range map[string]struct {
		hash    string
		address uint64
		want    string
	}{
		"C":                  {hash, at["two"] + 1, "two"},
		"C++":                {hash, at["_ZN3app5threeEi"], "app::three"},
		"without a hash":     {"", at["main"] + 2, "main"},
		"another file":       {"00112233445566778899aabbccddeeff", at["two"], "[program]"},
		"outside functions":  {hash, 1, "[program]"},
		"beyond the program": {hash, 1 << 40, "[program]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSamples()
			d := s.Dictionary()
			d.StringTable().Append("program")
			mapping := d.MappingTable().AppendEmpty()
			mapping.SetFilenameStrindex(int32(d.StringTable().Len() - 1))
			if c.hash != "" {
				d.StringTable().Append("process.executable.build_id.htlhash")
				attribute := d.AttributeTable().AppendEmpty()
				attribute.SetKeyStrindex(int32(d.StringTable().Len() - 1))
				attribute.Value().SetStr(c.hash)
				mapping.AttributeIndices().Append(int32(d.AttributeTable().Len() - 1))
			}
			location := d.LocationTable().AppendEmpty()
			location.SetMappingIndex(1)
			location.SetAddress(c.address)
			s.addAt("2147483647").PutStr("process.executable.path", path)
			new(symbols).name(s.Profiles)
			e := newEnergy()
			stack := e.stack(dictionary{d}, sampleOf(s))
			require.Len(t, stack, 1)
			assert.Equal(t, c.want, stack[0].Line[0].Function.Name)
		})
	}
}

func TestWhatIsNoFileHasNoFunctions(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "program")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	for _, path := range []string{fifo, "/dev/zero"} {
		assert.Nil(t, readFunctions(path, ""), path)
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
	s := newSamples()
	d := s.Dictionary()
	d.StringTable().Append("program")
	d.MappingTable().AppendEmpty().SetFilenameStrindex(int32(d.StringTable().Len() - 1))
	d.LocationTable().AppendEmpty().SetMappingIndex(1)
	s.addAt("1")
	(&symbols{files: map[file][]elf.Symbol{{name: "program"}: {{Name: mangled + "EEv", Size: 1}}}, paths: map[string][]string{}}).name(s.Profiles)
	name := newEnergy().stack(dictionary{d}, sampleOf(s))[0].Line[0].Function.Name
	assert.Contains(t, name, "A::operator void")
	assert.LessOrEqual(t, len(name), 1024)
}

func TestFilesOfAProcessAreThoseThatItHasMapped(t *testing.T) {
	s := newSamples()
	s.add("self", "f")
	s.ResourceProfiles().At(0).Resource().Attributes().PutStr("process.pid", "self")
	var own symbols
	own.name(s.Profiles)
	exe, err := os.Executable()
	require.NoError(t, err)
	assert.True(t, slices.Contains(own.paths[filepath.Base(exe)], exe), own.paths)
}

func TestTablesOfProgramsThatEndedAreNotKeptForEver(t *testing.T) {
	of := symbols{files: map[file][]elf.Symbol{}, paths: map[string][]string{}}
	for i := range 10 * maxFiles {
		of.files[file{name: strconv.Itoa(i)}] = []elf.Symbol{}
		of.name(newSamples().Profiles)
		require.LessOrEqual(t, len(of.files), maxFiles)
	}
}

func TestMalformedTablesHaveNoFunctions(t *testing.T) {
	s := newSamples()
	location := s.Dictionary().LocationTable().AppendEmpty()
	location.SetMappingIndex(99)
	location.Lines().AppendEmpty().SetFunctionIndex(-1)
	s.addAt("1")
	sample := sampleOf(s)
	new(symbols).name(s.Profiles)
	assert.Len(t, newEnergy().stack(dictionary{s.Dictionary()}, sample), 1)
	sample.SetStackIndex(-5)
	new(symbols).name(s.Profiles)
	assert.Empty(t, newEnergy().stack(dictionary{s.Dictionary()}, sample))
}
