// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

func TestBoundCutsWholeCharacters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"it fits", "12345678", "12345678"},
		{"too long", "123456789", "12345…"},
		{"cut within a character", "1234é6789", "1234…"},
		{"cut behind a character", "123é6789", "123é…"},
		{"invalid, and fits", "a\xffb", "a\uFFFDb"},
		{"longer when valid", "a\xffa\xffa\xff", "a\uFFFDa…"},
		{"shorter when valid", strings.Repeat("\xff", 9), "\uFFFD…"},
		{"empty", "", ""},
	} {
		assert.Equal(t, c.want, bound(c.in, 8), c.name)
	}
}

func TestLongIDsThatDifferStayDifferent(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", maxName/2)
	ids := map[string]string{}
	for _, id := range []string{"", "a", long, long + "x", long + "y", long[1:], long[2:] + "\xff", long[2:] + "\xfe", "a" + long + "x", long + long + "x"} {
		got := boundID(id)
		if len(got) > maxName || !utf8.ValidString(got) {
			t.Errorf("%q of %d bytes", got, len(got))
		}
		if len(id) <= maxName && utf8.ValidString(id) != (got == id) || len(id) > maxName && !strings.Contains(got, ellipsis) {
			t.Errorf("%q is bound to %q", id, got)
		}
		if other, ok := ids[got]; ok {
			t.Errorf("%q and %q are both %q", id, other, got)
		}
		if again := boundID(got); again != got {
			t.Errorf("%q is bound to %q", got, again)
		}
		ids[got] = id
	}
}

func TestMachinesOfNestedContainersStayDifferentHoweverLongTheirNames(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for n := range 2 {
		path := fmt.Sprintf("0::/lxc/%s/machine.slice/machine-qemu-1-%s%d.scope\n", strings.Repeat("c", 255), strings.Repeat("v", 200), n)
		id := ParseCgroup([]byte(path)).VM.ID
		assert.True(t, id != "" && len(id) <= maxName, id)
		ids[id] = true
	}
	assert.Len(t, ids, 2)
}

func TestEveryAttributeIsBounded(t *testing.T) {
	long := strings.Repeat("a\xff", 120)
	name := strings.Repeat("n", 30_000)
	for what, p := range map[string]hostsim.Process{
		"executable":           {Comm: "app", Exe: "/" + strings.Repeat(long+"/", 15) + long},
		"command line":         {Comm: "app", Exe: "/bin/app", Args: []string{"app", name}},
		"QEMU's name":          {Comm: "qemu", Exe: "/usr/bin/qemu-system-x86_64", Args: []string{"qemu", "-name", "guest=" + name}},
		"Firecracker's id":     {Comm: "firecracker", Exe: "/usr/bin/firecracker", Args: []string{"firecracker", "--id", name}},
		"VirtualBox's comment": {Comm: "VBoxHeadless", Exe: "/usr/bin/VBoxHeadless", Args: []string{"VBoxHeadless", "--comment", name}},
		"a hypervisor's program": {
			Comm: "qemu", Exe: "/usr/bin/qemu-system-" + strings.Repeat("x", 234), Args: []string{"qemu"}, Start: 1 << 40,
		},
		"containers": {
			Comm: "app", Exe: "/bin/app",
			Cgroup: "0::/lxc/" + strings.Repeat("c", 255) + "/machine.slice/machine-qemu-1-" + strings.Repeat("v", 230) + ".scope",
		},
	} {
		t.Run(what, func(t *testing.T) {
			i := newIdentified(t, true)
			i.host.Processes[10] = &p
			got, _ := i.round(10)
			sizes := map[string]int{got.Path: 4096, got.CommandLine: 4096}
			for _, name := range []string{
				got.Executable, got.Container.ID, got.Container.Runtime, got.Pod.UID, got.VM.ID, got.VM.Name, got.VM.Hypervisor,
			} {
				sizes[name] = 256
			}
			for value, size := range sizes {
				assert.True(t, len(value) <= size && utf8.ValidString(value), "%.40q has %d bytes", value, len(value))
			}
			assert.Contains(t, fmt.Sprintf("%+v", got), ellipsis, "something is cut")
		})
	}
}
