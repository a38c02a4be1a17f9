// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

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
		if got := bound(c.in, 8); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
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
		if len(id) == 0 || len(id) > maxName {
			t.Errorf("%q of %d bytes", id, len(id))
		}
		ids[id] = true
	}
	if len(ids) != 2 {
		t.Errorf("two machines have the IDs %v", ids)
	}
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
			for _, a := range []struct {
				value string
				size  int
			}{
				{got.Executable, 256},
				{got.Path, 4096},
				{got.CommandLine, 4096},
				{got.Container.ID, 256},
				{got.Container.Runtime, 256},
				{got.Pod.UID, 256},
				{got.VM.ID, 256},
				{got.VM.Name, 256},
				{got.VM.Hypervisor, 256},
			} {
				if len(a.value) > a.size || !utf8.ValidString(a.value) {
					t.Errorf("%.40q has %d bytes", a.value, len(a.value))
				}
			}
			if !strings.Contains(fmt.Sprintf("%+v", got), ellipsis) {
				t.Errorf("nothing was cut of %+v", got)
			}
		})
	}
}
