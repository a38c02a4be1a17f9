// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

func noEnv(string) string { return "" }

func env(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

// extract writes the files of an archive into a directory.
func extract(t testing.TB, files []txtar.File) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, f := range files {
		path := filepath.Join(root, f.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, f.Data, 0o600))
	}
	return root
}

// fields returns the fields of a machine that are known, a line each.
func fields(m *Machine) (lines string) {
	v := reflect.ValueOf(*m)
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			lines += fmt.Sprintf("%s: %v\n", v.Type().Field(i).Name, v.Field(i))
		}
	}
	return lines
}

func TestMachinesAreKnownByTheirFiles(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			require.NoError(t, err)
			want, files := string(archive.Files[0].Data), archive.Files[1:]
			m, err := Read(extract(t, files), noEnv)
			assert.NoError(t, err)
			assert.Empty(t, cmp.Diff(want, fields(&m)))
		})
	}
}

func TestInstanceTypeComesFromTheEnvironmentWhereTheFirmwareDoesNotTell(t *testing.T) {
	const attributes = "OTEL_RESOURCE_ATTRIBUTES"
	google := firmware{productName: "Google Compute Engine"}
	amazon := firmware{vendor: "Amazon EC2", productName: "m5.large"}
	for _, tc := range []struct {
		name            string
		firmware        firmware
		env             map[string]string
		cloud, instance string
	}{
		{"nothing", firmware{}, nil, "", ""},
		{"variable", google, map[string]string{InstanceVariable: "n2-standard-2"}, "gcp", "n2-standard-2"},
		{"attribute", google, map[string]string{attributes: "service.name=a,host.type=n2-standard-2"}, "gcp", "n2-standard-2"},
		{"attributes without firmware", firmware{}, map[string]string{attributes: "cloud.provider=aws,host.type=m5.large"}, "aws", "m5.large"},
		{"firmware before attribute", amazon, map[string]string{attributes: "cloud.provider=gcp,host.type=n2-standard-2"}, "aws", "m5.large"},
		{"variable before all", amazon, map[string]string{InstanceVariable: "m5.xlarge", attributes: "host.type=m4.large"}, "aws", "m5.xlarge"},
		{"percent encoding", google, map[string]string{attributes: " host.type = n2%2Dstandard%2D2 "}, "gcp", "n2-standard-2"},
		{"not well-formed", google, map[string]string{attributes: "host.type,=,host.type=%zz,cloud.provider"}, "gcp", ""},
		{"control characters", google, map[string]string{InstanceVariable: "a\nb\x1b[0m"}, "gcp", "a?b?[0m"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cloud, instance := tc.firmware.cloud(env(tc.env))
			assert.Equal(t, tc.cloud, cloud)
			assert.Equal(t, tc.instance, instance)
		})
	}
}

func TestMachineIsVirtualIfItsCPUOrItsFirmwareSaysSo(t *testing.T) {
	x86, x86Guest, arm := cpuInfo{flags: true}, cpuInfo{flags: true, hypervisor: true}, cpuInfo{}
	google := firmware{productName: "Google Compute Engine"}
	for _, tc := range []struct {
		name     string
		firmware firmware
		info     cpuInfo
		instance string
		want     bool
	}{
		{"a server", firmware{vendor: "Dell Inc."}, x86, "", false},
		{"the CPU's flag", firmware{vendor: "Dell Inc."}, x86Guest, "", true},
		{"a cloud's bare metal, by the flag that is missing", google, x86, "", false},
		{"a cloud's Arm machine", google, arm, "", true},
		{"a cloud's Arm bare metal, by its type", google, arm, "c4a-highmem-96-metal", false},
		{"Xen without the flag", firmware{hypervisor: "xen"}, x86, "", true},
		{"a hypervisor in the device tree", firmware{hypervisorNode: true}, arm, "", true},
	} {
		assert.Equal(t, tc.want, tc.firmware.virtual(&tc.info, tc.instance), tc.name)
	}
}

func TestMachineIsToldInOneLine(t *testing.T) {
	for want, m := range map[string]Machine{
		"unknown CPU, 0 CPUs": {},
		"Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz, 80 CPUs, 188 GiB": {CPU: "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz", Threads: 80, Memory: 201452650496},
		"Arm Neoverse-N1 (AWS Graviton2), 2 CPUs, 7.54 GiB, virtual, aws m6g.large": {
			CPU: "Arm Neoverse-N1", Chip: "AWS Graviton2", Threads: 2, Memory: 8091869184, Virtual: true, Cloud: "aws", Instance: "m6g.large",
		},
		"unknown CPU, 2 CPUs, virtual, gcp": {Threads: 2, Virtual: true, Cloud: "gcp"},
	} {
		assert.Equal(t, want, m.String())
	}
}

func TestMachineWithoutCPUsIsAnError(t *testing.T) {
	for name, files := range map[string]string{
		"no files":     "",
		"empty":        "-- proc/cpuinfo --\n-- sys/devices/system/cpu/online --\n\n",
		"garbage":      "-- proc/cpuinfo --\n\x00\xff:::\n: :\nprocessor\n-- sys/devices/system/cpu/online --\n4-1,x\n",
		"a cut number": "-- proc/cpuinfo --\nmodel name\t: x\n",
	} {
		t.Run(name, func(t *testing.T) {
			root := extract(t, append(txtar.Parse([]byte(files)).Files, txtar.File{Name: "proc/meminfo", Data: []byte("MemTotal: 8 kB\n")}))
			m, err := Read(root, noEnv)
			assert.ErrorContains(t, err, "identify the machine: ")
			assert.Zero(t, m.Threads)
			assert.EqualValues(t, 8192, m.Memory)
		})
	}
}

func TestCPUsAreCountedWithoutCPUInfo(t *testing.T) {
	root := extract(t, txtar.Parse([]byte("-- sys/devices/system/cpu/online --\n0-3,8\n")).Files)
	m, err := Read(root, noEnv)
	require.NoError(t, err)
	assert.Equal(t, Machine{Threads: 5}, m)
}

// x86 returns the text of a processor in /proc/cpuinfo.
func x86(number int, name string) string {
	return fmt.Sprintf("processor\t: %d\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: %s\nstepping\t: 7\n"+
		"flags\t\t: fpu %s\n\n", number, name, strings.Repeat("flag ", 300))
}

func arm(number, part int) string {
	return fmt.Sprintf("processor\t: %d\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0x%x\nCPU revision\t: 2\n\n", number, part)
}

func describe(text string) (m Machine) {
	info := parseCPUInfo(strings.NewReader(text))
	info.describe(&m)
	return m
}

func TestLastLineThatIsCutOffDoesNotCount(t *testing.T) {
	whole := x86(0, "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz")
	for i := range len(whole) {
		m := describe(whole[:i])
		if m.CPU != "" && m.CPU != "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz" || m.Model != 0 && m.Model != 85 {
			t.Fatalf("%d bytes: %+v", i, m)
		}
		two := describe(whole + x86(1, "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz")[:i])
		if two.CPU != "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz" {
			t.Fatalf("second processor with %d bytes: %+v", i, two)
		}
	}
}

func TestKindOfMostCPUsNamesTheMachine(t *testing.T) {
	text := arm(0, 0xd05) + arm(1, 0xd0b) + arm(2, 0xd0b) + arm(3, 0xd44)
	want := Machine{Arch: "arm64", CPU: "Arm Cortex-A76", Vendor: "Arm", Model: 0xd0b, Stepping: 2, Threads: 4}
	assert.Equal(t, want, describe(text))
}

func TestUnknownArmCPUIsToldByItsNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"processor: 0\nCPU implementer: 0x41\nCPU part: 0xfff\n":             "Arm part 0xfff",
		"processor: 0\nCPU implementer: 0x99\nCPU part: 0x001\n":             "Arm implementer 0x99 part 0x001",
		"processor: 0\nCPU implementer: 0x41\n":                              "Arm CPU",
		"processor: 0\nCPU implementer: x\nCPU part: 99999999999999999999\n": "Arm implementer 0x00 part 0x000",
	} {
		assert.Equal(t, want, describe(text).CPU, text)
	}
}

func TestLinesLongerThanTheBufferAreSkipped(t *testing.T) {
	long := "flags\t: " + strings.Repeat("flag ", maxLine) + "hypervisor\n"
	m := describe("processor\t: 0\n" + long + "vendor_id\t: GenuineIntel\nmodel name\t: A\nflags\t: fpu\n\n" + long)
	if m.CPU != "A" || m.Threads != 1 {
		t.Errorf("%+v", m)
	}
}

func TestNamesHoldNoControlCharacters(t *testing.T) {
	m := describe("processor\t: 0\nvendor_id\t: Genu\x1bineIntel\nmodel name\t: A\xffB\u00a0" + strings.Repeat("C", 500) + "\nflags\t: fpu\n")
	if m.Vendor != "Genu?ineIntel" || !strings.HasPrefix(m.CPU, "A?B?CCC") || len(m.CPU) > maxText {
		t.Errorf("%q %q", m.Vendor, m.CPU)
	}
}

func TestMemoryIsReadInBytes(t *testing.T) {
	for text, want := range map[string]uint64{
		"MemTotal:       16318432 kB\nMemFree: 1 kB\n": 16318432 << 10,
		"MemFree: 1 kB\nMemTotal: 2 kB\n":              2048,
		"":                                             0,
		"MemTotal:       163184":                       0,
		"MemTotal: -5 kB\n":                            0,
		"MemTotal: 18446744073709551615 kB\n":          0,
		"MemTotal: 5 MB\n":                             0,
	} {
		assert.Equal(t, want, memTotal([]byte(text)), text)
	}
}

func FuzzCPUInfo(f *testing.F) {
	f.Add(x86(0, "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz"))
	f.Add(arm(0, 0xd0c) + arm(1, 0xd40))
	f.Add("processor\t: 0\nCPU implementer\t: 0x61\nCPU part\t: 0x022")
	f.Fuzz(func(t *testing.T, text string) {
		m := describe(text)
		for _, name := range []string{m.CPU, m.Vendor} {
			if len(name) > 2*maxText || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q", name)
			}
		}
		if m.Threads < 0 || m.Family < 0 || m.Model < 0 || m.Stepping < 0 || m.Threads == 0 && m.CPU != "" {
			t.Errorf("%+v", m)
		}
	})
}

func FuzzEnvironment(f *testing.F) {
	f.Add("m5.large", "host.type=a,cloud.provider=aws")
	f.Add("", "host.type=%41,=,,")
	f.Fuzz(func(t *testing.T, instance, attributes string) {
		cloud, instance := (&firmware{}).cloud(env(map[string]string{InstanceVariable: instance, "OTEL_RESOURCE_ATTRIBUTES": attributes}))
		if len(cloud) > maxText || len(instance) > maxText {
			t.Errorf("%q %q", cloud, instance)
		}
	})
}
