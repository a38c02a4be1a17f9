// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// A second parser of cgroup files, with regular expressions. It is slow and simple, and shares only
// the bound of IDs with the first one.

const (
	hex64Re = `[0-9a-f]{64}`
	buildRe = `[0-9a-z]{25}`
	uuidRe  = `[0-9a-fA-F]{8}[-_][0-9a-fA-F]{4}[-_][0-9a-fA-F]{4}[-_][0-9a-fA-F]{4}[-_][0-9a-fA-F]{12}`
	anyUID  = `(` + uuidRe + `|[0-9a-fA-F]{32})`
	nameRe  = `[A-Za-z0-9_][-A-Za-z0-9_.]{0,254}`
)

// naiveShapes are the containers that are marked by their own name. The pattern's group is the id.
var naiveShapes = []struct {
	pattern *regexp.Regexp
	runtime string
}{
	{regexp.MustCompile(`^docker-(` + buildRe + `)\.scope$`), "docker"},
	{regexp.MustCompile(`^docker-(` + hex64Re + `)(?:\.scope)?$`), "docker"},
	{regexp.MustCompile(`^cri-containerd-(` + hex64Re + `)\.scope$`), "containerd"},
	{regexp.MustCompile(`^nerdctl-(` + hex64Re + `)\.scope$`), "containerd"},
	{regexp.MustCompile(`^crio-(` + hex64Re + `)(?:\.scope)?$`), "cri-o"},
	{regexp.MustCompile(`^libpod-(?:payload-)?(` + hex64Re + `)(?:\.scope)?$`), "podman"},
	{regexp.MustCompile(`^kata_(` + hex64Re + `)(?:\.scope)?$`), "kata"},
	{regexp.MustCompile(`^lxc\.payload\.(.*?)(?:\.scope)?$`), "lxc"},
	{regexp.MustCompile(`^machine-(.*)\.scope$`), "systemd-nspawn"},
	{regexp.MustCompile(`^systemd-nspawn@(.*)\.service$`), "systemd-nspawn"},
}

// naivePlaces are the containers that are marked by a directory above. The first group is the
// directory, the second one the id. Of several matches the one nearest to the id counts.
var naivePlaces = []struct {
	pattern *regexp.Regexp
	runtime string
}{
	{regexp.MustCompile(`^(.*/)?docker/(?:.*/)?(` + hex64Re + `)$`), "docker"},
	{regexp.MustCompile(`^(.*/)?ecs/(?:.*/)?(` + hex64Re + `)$`), "docker"},
	{regexp.MustCompile(`^(.*/)?kata_overhead/(?:.*/)?(` + hex64Re + `)$`), "kata"},
	{regexp.MustCompile(`^(.*/)?ecs/(?:.*/)?([0-9a-f]{32}-[0-9]+)$`), "containerd"},
	{regexp.MustCompile(`^(.*/)?garden(?:[-.][^/]*)?/(?:.*/)?([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){4}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`), "garden"},
	{regexp.MustCompile(`^(.*/)?buildkit/(` + buildRe + `)$`), "buildkit"},
	{regexp.MustCompile(`^(.*/)?mesos/([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`), "mesos"},
	{regexp.MustCompile(`^(.*/)?lxc/(` + nameRe + `)$`), "lxc"},
	{regexp.MustCompile(`^((?:.*/)?\.\./|)(?:default|k8s\.io)/(` + nameRe + `)$`), "containerd"},
}

var (
	naiveLiteral  = regexp.MustCompile(`^([^:]*\.slice|):([^:]*):(.*)$`)
	naiveSlicePod = regexp.MustCompile(`^(?:.*-)?kubepods-(?:(burstable|besteffort)-)?pod` + anyUID + `\.slice$`)
	naivePod      = regexp.MustCompile(`^(?:.*/)?(kubepods|\.\.)(?:/(burstable|besteffort))?/pod([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32})$`)
	naivePlain    = regexp.MustCompile(`^((?:.*/)?(?:libpod_parent|firecracker)/)?(` + hex64Re + `)$`)
	naiveEscape   = regexp.MustCompile(`\\x[0-9a-fA-F]{2}`)
	naiveScope    = regexp.MustCompile(`^machine-(.*)\.scope$`)
	naiveLibvirt  = regexp.MustCompile(`^(.+)\.libvirt-(qemu|ch|lxc)$`)
	naiveMachine  = regexp.MustCompile(`^(?:(qemu|lxc)-.+|(ch)-[0-9]+-.*)$`)
	naiveProxmox  = regexp.MustCompile(`^(?:.*/)?qemu\.slice/([0-9]+)\.scope$`)
	naiveGuest    = regexp.MustCompile(`^(?:embed-[0-9a-fA-F]{8}-[0-9]+-|[0-9]+-)(.*)$`)
	naiveUser     = regexp.MustCompile(`^user(?:-([0-9]+)\.slice|@([0-9]+)\.service)$`)
	naiveUnit     = regexp.MustCompile(`\.(?:service|scope)$`)
	naiveRuntimes = regexp.MustCompile(`^(?:containerd|crio|docker|podman|buildkitd?|k3s|k3s-agent|rke2-server|rke2-agent|k0scontroller|k0sworker|` +
		`snap\.docker\.dockerd|snap\.microk8s\.daemon-containerd|lxc|lxd|incus|snap\.lxd\.daemon|garden|guardian|mesos-agent|mesos-slave|` +
		`libvirtd|virtqemud|virtchd|virtlxcd)(?:@.*)?\.service$`)
	naiveName     = regexp.MustCompile(`^` + nameRe + `$`)
	naiveNoName   = regexp.MustCompile(`\.(?:scope|service|slice)$`)
	naiveFargate  = regexp.MustCompile(`^[0-9a-f]{32}-[0-9]+$`)
	naiveBelow    = regexp.MustCompile(`^(?:.*/)?([^/]*)/` + hex64Re + `$`)
	naiveJob      = regexp.MustCompile(`^/(?:(?:[^/]*_)?slurmstepd\.scope|slurm(?:_[^/]*)?/uid_[0-9]+)/job_([0-9]+)(?:/step_(batch|extern|interactive|[0-9]+(?:\+[0-9]+)?))?(?:/.*)?$`)
	naiveUnitName = `(?:[-a-zA-Z0-9:_.\\]+|[-a-zA-Z0-9:_.\\]+@[-a-zA-Z0-9:_.\\@]+)`
	naiveSlice    = regexp.MustCompile(`^_?` + naiveUnitName + `\.slice$`)
	naiveInSlices = regexp.MustCompile(`^_?(` + naiveUnitName + `\.(?:service|scope|socket|mount|swap))$`)
	naiveControls = regexp.MustCompile(`[\x00-\x1f\x7f]`)
)

func naiveUnescape(s string) string {
	return naiveEscape.ReplaceAllStringFunc(s, func(e string) string {
		n, _ := strconv.ParseUint(e[2:], 16, 8)
		return string([]byte{byte(n)})
	})
}

func naivePrintable(s string) bool {
	return strings.ToValidUTF8(s, "") == s && !naiveControls.MatchString(s)
}

func naiveIsName(s string) bool {
	return naiveName.MatchString(s) && !naiveNoName.MatchString(s)
}

// naiveLibvirtMachine returns the driver and the name of libvirt's machine in a cgroup, and the
// prefix of the machine's scope.
func naiveLibvirtMachine(dir string) (driver, machine, start string) {
	if m := naiveScope.FindStringSubmatch(dir); m != nil {
		machine = naiveUnescape(m[1])
		if d := naiveMachine.FindStringSubmatch(machine); d != nil {
			driver, start = d[1]+d[2], "machine-"
		}
	} else if m := naiveLibvirt.FindStringSubmatch(dir); m != nil && !strings.HasSuffix(dir, ".scope") {
		machine, driver = m[1], m[2]
	}
	if driver == "" || !naivePrintable(machine) || strings.Contains(machine, "/") {
		return "", "", ""
	}
	return driver, machine, start
}

// naiveContainer returns the container whose cgroup is the last directory of a path, which starts
// after the enclosing container.
func naiveContainer(path, dir string) (id, runtime string, nspawn, lxcDir bool) {
	if driver, machine, _ := naiveLibvirtMachine(dir); driver != "" {
		if driver == "lxc" {
			return machine, "lxc", false, false
		}
		return "", "", false, false
	}
	for _, s := range naiveShapes {
		m := s.pattern.FindStringSubmatch(dir)
		if m == nil {
			continue
		}
		id := m[1]
		switch s.runtime {
		case "systemd-nspawn":
			if id = naiveUnescape(id); !naiveIsName(id) {
				continue
			}
		case "lxc":
			if !naiveIsName(id) || strings.HasPrefix(id, "lxc.") {
				continue
			}
		}
		return id, s.runtime, s.runtime == "systemd-nspawn", false
	}
	nearest := -1
	whole := path + dir
	for _, p := range naivePlaces {
		m := p.pattern.FindStringSubmatch(whole)
		if m == nil || m[2] != dir || len(m[1]) <= nearest {
			continue
		}
		if strings.HasPrefix(p.pattern.String(), `^(.*/)?lxc/`) && (!naiveIsName(dir) || strings.HasPrefix(dir, "lxc.")) ||
			p.runtime == "containerd" && !naiveFargate.MatchString(dir) && !naiveIsName(dir) {
			continue
		}
		nearest, id, runtime = len(m[1]), dir, p.runtime
		lxcDir = p.runtime == "lxc"
	}
	if id != "" {
		return id, runtime, false, lxcDir
	}
	if m := naivePlain.FindStringSubmatch(whole); m != nil && m[1] == "" && m[2] == dir {
		return dir, "", false, false
	}
	if m := naiveBelow.FindStringSubmatch(whole); m != nil && m[1] != "libpod_parent" && m[1] != "firecracker" {
		return dir, "", false, false
	}
	return "", "", false, false
}

type naiveLine struct {
	Placement
	owner, path, jobCgroup string
	levels, rank           int
}

// naiveSystemd returns the systemd unit that a path is in.
func naiveSystemd(path string) (unit identity.SystemdUnit) {
	for dir := range strings.SplitSeq(path, "/") {
		if dir == "" || naiveSlice.MatchString(dir) && len(strings.TrimPrefix(dir, "_")) <= 255 {
			continue
		}
		if m := naiveInSlices.FindStringSubmatch(dir); m != nil && len(m[1]) <= 255 {
			unit.Name = m[1]
		}
		break
	}
	return unit
}

func naivePath(path string, unified bool) naiveLine {
	l := naiveLine{path: path}
	l.Unit = naiveSystemd(path)
	var owners string
	var user, noPods bool
	var pod identity.Pod
	enter := func(name string) {
		if owners != "" {
			name = owners + "/" + name
		}
		owners = boundID(name)
	}
	other := func(dir string) {
		switch m := naiveUser.FindStringSubmatch(dir); {
		case m != nil:
			manager := "user@" + m[1] + m[2] + ".service"
			if !user || owners != manager && !strings.HasSuffix(owners, "/"+manager) {
				enter(manager)
			}
			user, noPods = true, true
		case user || !naiveUnit.MatchString(dir) || naiveRuntimes.MatchString(dir):
		case !naivePrintable(dir):
			enter(strconv.QuoteToASCII(dir))
			noPods = true
		default:
			enter(dir)
			noPods = true
		}
	}
	qualified := func(id string) string {
		if owners != "" {
			return boundID(owners + "/" + id)
		}
		return id
	}
	dirs := strings.Split(path, "/")
	begin := 0 // of the part after the innermost container
	root := -1 // of Slurm's directories
	for i, dir := range dirs {
		if root >= 0 && root == begin-1 { // they are a container
			root, l.Job, l.jobCgroup = -1, identity.SlurmStep{}, ""
		}
		if m := naiveJob.FindStringSubmatch("/" + strings.Join(dirs[i:], "/")); m != nil && !noPods && l.Job.ID == "" {
			root = i
			l.Job = identity.SlurmStep{ID: qualified(m[1]), Step: m[2]}
			below := 2 // the scope and the job
			if strings.HasPrefix(dirs[i+1], "uid_") {
				below = 3
			}
			if m[2] != "" {
				below++
			}
			l.jobCgroup = strings.Join(dirs[:i+below], "/")
		}
		if dir == "" {
			if begin == i {
				begin++
			}
			continue
		}
		var behind string
		for _, d := range dirs[begin:i] {
			behind += d + "/"
		}
		slice, unit := dir, dir
		if m := naiveLiteral.FindStringSubmatch(dir); m != nil {
			slice, unit = m[1], m[2]+"-"+m[3]+".scope"
		}
		class := map[string]string{"burstable": "Burstable", "besteffort": "BestEffort"}
		var found identity.Pod
		if m := naiveSlicePod.FindStringSubmatch(slice); m != nil {
			found = identity.Pod{UID: strings.ReplaceAll(m[2], "_", "-"), QoSClass: cmp.Or(class[m[1]], "Guaranteed")}
		} else if m := naivePod.FindStringSubmatch(behind + slice); m != nil && !strings.Contains(slice, "/") {
			found = identity.Pod{UID: m[3], QoSClass: class[m[2]]}
			if m[1] == "kubepods" && m[2] == "" {
				found.QoSClass = "Guaranteed"
			}
		}
		if found.UID != "" && !noPods {
			found.UID = qualified(found.UID)
			pod = found
			l.levels++
			if l.Container.ID == "" {
				l.Pod = pod
			}
		}
		driver, machine, start := naiveLibvirtMachine(dir)
		if driver == "qemu" || driver == "ch" {
			name := strings.TrimPrefix(machine, driver+"-")
			if m := naiveGuest.FindStringSubmatch(name); m != nil {
				name = m[1]
			}
			l.VM = identity.VM{ID: qualified(start + machine), Name: name, Hypervisor: map[string]string{"qemu": "qemu", "ch": "cloud-hypervisor"}[driver]}
			l.owner = owners
			other(dir)
			continue
		}
		if m := naiveProxmox.FindStringSubmatch(behind + dir); m != nil {
			l.VM, l.owner = identity.VM{ID: qualified(m[1]), Hypervisor: "qemu"}, owners
			other(dir)
			continue
		}
		id, runtime, nspawn, lxcDir := naiveContainer(behind, unit)
		if id == "" {
			other(dir)
			continue
		}
		next := append(dirs, "")[i+1]
		own := strings.Join(dirs[:i+1], "/")
		if nspawn && next == "supervisor" || lxcDir && next == "monitor" {
			l.levels++
			break
		}
		if (nspawn || lxcDir) && next == "payload" {
			own += "/payload"
		} else if nspawn && unified {
			other(dir)
			continue
		}
		l.levels++
		enter(id)
		user = false
		l.Pod, l.Cgroup = pod, own
		l.Container = identity.Container{ID: owners, Runtime: runtime}
		begin = i + 1
	}
	if l.VM.ID == "" {
		l.owner = owners
	}
	return l
}

// naiveParse has the results of parseCgroup.
func naiveParse(file string) (p Placement, owner string) {
	var lines []naiveLine
	for _, line := range strings.Split(file, "\n") {
		fields := strings.SplitN(line, ":", 3)
		if len(fields) < 3 || !strings.HasPrefix(fields[2], "/") {
			continue
		}
		rank := 4
		for i, controller := range []string{"name=systemd", "cpu", "cpuacct"} {
			if slices.Contains(strings.Split(fields[1], ","), controller) {
				rank = 3 - i
			}
		}
		unified := fields[0] == "0" && fields[1] == ""
		if unified {
			rank = 0
		}
		l := naivePath(strings.TrimSuffix(fields[2], " (deleted)"), unified)
		l.rank = rank
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b naiveLine) int {
		return cmp.Or(cmp.Compare(b.levels, a.levels), cmp.Compare(a.rank, b.rank), cmp.Compare(a.path, b.path))
	})
	for _, l := range slices.Backward(lines) { // the best one is applied last
		if l.levels > 0 {
			p = l.Placement
		}
		if l.owner != "" {
			owner = l.owner
		}
	}
	p.VM, p.Job, p.Unit = identity.VM{}, identity.SlurmStep{}, identity.SystemdUnit{}
	jobCgroup := ""
	for _, l := range slices.Backward(lines) {
		if l.VM.ID != "" {
			p.VM, owner = l.VM, l.owner
		}
		if l.Job.ID != "" && (l.Job.Step != "" || p.Job.Step == "") {
			p.Job, jobCgroup = l.Job, l.jobCgroup
		}
		if l.Unit.Name != "" {
			p.Unit = l.Unit
		}
	}
	if p.Container.ID == "" {
		p.Cgroup = jobCgroup
	}
	p.Job.ID, p.Job.Step = boundID(p.Job.ID), boundID(p.Job.Step)
	p.Container.ID, p.Pod.UID = boundID(p.Container.ID), boundID(p.Pod.UID)
	boundVM(&p.VM)
	return p, owner
}

// checkAgreement compares the parsers on a file and returns the placement and the cgroup owner.
func checkAgreement(t *testing.T, file string) (Placement, string) {
	t.Helper()
	got, by := parseCgroup([]byte(file))
	want, owner := naiveParse(file)
	if got != want || by.name != owner {
		t.Fatalf("%q\n got %+v by %q\nwant %+v by %q", file, got, by.name, want, owner)
	}
	return got, owner
}

// directories returns the directories in the test cases.
func directories() (dirs []string) {
	known := map[string]bool{}
	add := func(path string) {
		for dir := range strings.SplitSeq(path, "/") {
			if !known[dir] {
				known[dir] = true
				dirs = append(dirs, dir)
			}
		}
	}
	for _, c := range cgroupCases() {
		for line := range strings.SplitSeq(strings.TrimSpace(c.content()), "\n") {
			add(line[strings.LastIndexByte(line, ':')+1:])
			add(c.file)
		}
	}
	for _, where := range slices.Sorted(maps.Keys(cgroupOwners)) {
		add(cgroupOwners[where].dir)
	}
	for range 20 { // as neighbors
		dirs = append(dirs, "slurmstepd.scope/job_7", "slurmstepd.scope/job_7/step_0", "a_slurmstepd.scope/job_8/step_batch",
			"slurm/uid_0/job_7/step_0", "slurm_n/uid_1/job_9/step_x", "lxc.payload.b_slurmstepd.scope/job_7/step_1")
	}
	return dirs
}

// TestParsersAgreeOnRandomFiles builds paths from the directories in the test cases, unchanged and
// changed.
func TestParsersAgreeOnRandomFiles(t *testing.T) {
	t.Parallel()
	dirs, r := directories(), rand.New(rand.NewPCG(1, 2))
	dir := func() string {
		d := dirs[r.IntN(len(dirs))]
		switch r.IntN(12) {
		case 0:
			d += []string{".scope", ".service", ".slice", "-", ".libvirt-qemu", ".libvirt-lxc", "a", " (deleted)"}[r.IntN(8)]
		case 1:
			d = []string{"docker-", "lxc.payload.", "machine-", "pod", "x", "kubepods-", "-", "user@", "libpod-", ":"}[r.IntN(10)] + d
		case 2:
			if d != "" {
				at := r.IntN(len(d))
				d = d[:at] + d[at+r.IntN(2):] + d[at:]
			}
		}
		return d
	}
	headers := []string{"0::", "0::", "0::", "4:cpu,cpuacct:", "1:name=systemd:", "9:memory:", "3:cpu:", "2:cpuacct:"}
	var found [6]int
	for range 2000 {
		var file strings.Builder
		for range 1 + r.IntN(2)*r.IntN(3) {
			file.WriteString(headers[r.IntN(len(headers))])
			for range 1 + r.IntN(6) {
				file.WriteString("/" + dir())
			}
			file.WriteString("\n")
		}
		got, owner := checkAgreement(t, file.String())
		for i, part := range []string{got.Pod.UID, got.Container.ID, got.VM.ID, got.Job.ID, got.Unit.Name, owner} {
			if part != "" {
				found[i]++
			}
		}
	}
	assert.GreaterOrEqual(t, slices.Min(found[:]), 50, "%v are pods, containers, machines, jobs, units, owners", found)
}

func FuzzParseCgroupAgreesWithANaiveOne(f *testing.F) {
	for _, c := range cgroupCases() {
		f.Add([]byte(c.content()))
	}
	for _, path := range forgeries() {
		f.Add([]byte("0::" + userUnit + "/" + path + "\n4:cpu,cpuacct:/docker/" + idC + "/" + path))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1000 {
			return // too long for regular expressions
		}
		checkAgreement(t, string(b))
	})
}
