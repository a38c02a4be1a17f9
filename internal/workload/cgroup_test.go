// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// Synthetic ids.
var (
	idA  = strings.Repeat("a1", 32)
	idB  = strings.Repeat("b2", 32)
	idC  = strings.Repeat("c3", 32)
	task = strings.Repeat("5e", 16)
)

const (
	uidX       = "11111111-2222-3333-4444-555555555555"
	uidXSlice  = "11111111_2222_3333_4444_555555555555"
	uidY       = "66666666-7777-8888-9999-000000000000"
	uidYSlice  = "66666666_7777_8888_9999_000000000000"
	uidStatic  = "00112233445566778899aabbccddeeff"
	buildID    = "abcdefghijklmnopqrstuvwx0"
	gardenID   = "01234567-89ab-cdef-0123-4567"
	userUnit   = "/user.slice/user-1000.slice/user@1000.service"
	aUsers     = "user@1000.service/" // prefix of IDs below userUnit
	podSlice   = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uidXSlice + ".slice"
	podDir     = "/kubepods/burstable/pod" + uidX
	kindSlices = "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + uidYSlice + ".slice"
)

type cgroupCase struct {
	name string
	file string // a path alone stands for cgroup v2's "0::<path>"
	want Placement
}

// contained is the placement in a container and nothing else.
func contained(id, runtime, cgroup string) Placement {
	return Placement{Workload: identity.Workload{Container: identity.Container{ID: id, Runtime: runtime}}, Cgroup: cgroup}
}

// podded is the placement in a container of pod uid.
func podded(id, runtime, cgroup, uid, class string) Placement {
	return Placement{
		Workload: identity.Workload{Container: identity.Container{ID: id, Runtime: runtime}, Pod: identity.Pod{UID: uid, QoSClass: class}},
		Cgroup:   cgroup,
	}
}

func inVM(id, name, hypervisor string) Placement {
	return Placement{Workload: identity.Workload{VM: identity.VM{ID: id, Name: name, Hypervisor: hypervisor}}}
}

const slurmScope = "/system.slice/slurmstepd.scope"

func inJob(id, step, cgroup string) Placement {
	return Placement{Workload: identity.Workload{Job: identity.SlurmStep{ID: id, Step: step}}, Cgroup: cgroup}
}

func cgroupCases() []cgroupCase {
	v1 := func(path string) string {
		var b strings.Builder
		for i, c := range []string{"rdma", "freezer", "cpuset", "memory", "cpu,cpuacct", "pids", "name=systemd"} {
			fmt.Fprintf(&b, "%d:%s:%s\n", 13-i, c, path)
		}
		return b.String()
	}
	return []cgroupCase{
		// Docker
		{"docker with cgroupfs", "/docker/" + idA, contained(idA, "docker", "/docker/"+idA)},
		{"docker with cgroupfs and v1", v1("/docker/" + idA), contained(idA, "docker", "/docker/"+idA)},
		{"docker on a hybrid host", v1("/docker/"+idA) + "0::/docker/" + idA + "\n", contained(idA, "docker", "/docker/"+idA)},
		{"docker, process in a child", "/docker/" + idA + "/init", contained(idA, "docker", "/docker/"+idA)},
		{"docker with systemd inside", "/docker/" + idA + "/system.slice/cron.service", contained(idA, "docker", "/docker/"+idA)},
		{"docker scope", "/system.slice/docker-" + idA + ".scope", contained(idA, "docker", "/system.slice/docker-"+idA+".scope")},
		{"docker scope's name without suffix", "/docker-" + idA, contained(idA, "docker", "/docker-"+idA)},
		{"docker scope's name without suffix, below a user's manager", userUnit + "/docker-" + idA, contained(aUsers+idA, "docker", userUnit+"/docker-"+idA)},
		{"a docker directory without an ID", "/docker-" + idA[:63], Placement{}},
		{"a docker directory with the ID of a build step", "/docker-" + buildID, Placement{}},
		{"docker scope, process in a child", "/system.slice/docker-" + idA + ".scope/init.scope", contained(idA, "docker", "/system.slice/docker-"+idA+".scope")},
		{"docker scope in a parent of the user's", "/limited.slice/limited-web.slice/docker-" + idA + ".scope", contained(idA, "docker", "/limited.slice/limited-web.slice/docker-"+idA+".scope")},
		{"docker below a parent of the user's", "/mygroup/" + idA, contained(idA, "", "/mygroup/"+idA)},
		{"docker at the top", "/" + idA, contained(idA, "", "/"+idA)},
		{"buildx builder", "/docker/buildx/" + idA, contained(idA, "docker", "/docker/buildx/"+idA)},
		{"build step of a builder", "/docker/buildx/" + idA + "/buildkit/" + buildID, contained(idA+"/"+buildID, "buildkit", "/docker/buildx/"+idA+"/buildkit/"+buildID)},
		{"build step of dockerd", "/docker/buildkit/" + buildID, contained(buildID, "buildkit", "/docker/buildkit/"+buildID)},
		{"build step of dockerd as a scope", "/system.slice/docker-" + buildID + ".scope", contained(buildID, "docker", "/system.slice/docker-"+buildID+".scope")},
		{"build step with the systemd path taken literally", "/system.slice/system.slice:docker:" + buildID, contained(buildID, "docker", "/system.slice/system.slice:docker:"+buildID)},
		{"rootless docker", userUnit + "/user.slice/docker-" + idA + ".scope", contained(aUsers+idA, "docker", userUnit+"/user.slice/docker-"+idA+".scope")},
		{"rootless docker with cgroupfs", userUnit + "/app.slice/docker.service/docker/" + idA, contained(aUsers+idA, "docker", userUnit+"/app.slice/docker.service/docker/"+idA)},
		{"docker in docker", "/docker/" + idA + "/docker/" + idB, contained(idA+"/"+idB, "docker", "/docker/"+idA+"/docker/"+idB)},
		{"podman in docker", "/docker/" + idA + "/libpod_parent/libpod-" + idB, contained(idA+"/"+idB, "podman", "/docker/"+idA+"/libpod_parent/libpod-"+idB)},
		{"unknown runtime in docker", "/docker/" + idA + "/" + idB, contained(idA+"/"+idB, "", "/docker/"+idA+"/"+idB)},

		// Podman
		{"podman", "/machine.slice/libpod-" + idA + ".scope/container", contained(idA, "podman", "/machine.slice/libpod-"+idA+".scope")},
		{"podman with cgroupfs", "/libpod_parent/libpod-" + idA, contained(idA, "podman", "/libpod_parent/libpod-"+idA)},
		{"podman pod", "/machine.slice/machine-libpod_pod_" + idB + ".slice/libpod-" + idA + ".scope", contained(idA, "podman", "/machine.slice/machine-libpod_pod_"+idB+".slice/libpod-"+idA+".scope")},
		{"podman pod with cgroupfs", "/libpod_parent/" + idB + "/libpod-" + idA, contained(idA, "podman", "/libpod_parent/"+idB+"/libpod-"+idA)},
		{"podman pod's monitor with cgroupfs", "/libpod_parent/" + idB + "/conmon", Placement{}},
		{"podman monitor with cgroupfs", "/libpod_parent/conmon", Placement{}},
		{"podman monitor", "/machine.slice/libpod-conmon-" + idA + ".scope", Placement{}},
		{"rootless podman", userUnit + "/user.slice/libpod-" + idA + ".scope/container", contained(aUsers+idA, "podman", userUnit+"/user.slice/libpod-"+idA+".scope")},
		{"rootless podman's own scope", userUnit + "/user.slice/podman-4711.scope", Placement{}},
		{"podman in a unit of its own", "/system.slice/web.service/libpod-payload-" + idA, contained("web.service/"+idA, "podman", "/system.slice/web.service/libpod-payload-"+idA)},
		{"podman monitor in a unit of its own", "/system.slice/web.service/runtime", Placement{}},

		// Kubernetes
		{
			"pod with containerd and systemd", podSlice + "/cri-containerd-" + idA + ".scope",
			podded(idA, "containerd", podSlice+"/cri-containerd-"+idA+".scope", uidX, "Burstable"),
		},
		{
			"pod with cri-o and systemd", podSlice + "/crio-" + idA + ".scope/container",
			podded(idA, "cri-o", podSlice+"/crio-"+idA+".scope", uidX, "Burstable"),
		},
		{
			"pod with docker and systemd", v1(podSlice + "/docker-" + idA + ".scope"),
			podded(idA, "docker", podSlice+"/docker-"+idA+".scope", uidX, "Burstable"),
		},
		{
			"guaranteed pod with systemd", "/kubepods.slice/kubepods-pod" + uidXSlice + ".slice/cri-containerd-" + idA + ".scope",
			podded(idA, "containerd", "/kubepods.slice/kubepods-pod"+uidXSlice+".slice/cri-containerd-"+idA+".scope", uidX, "Guaranteed"),
		},
		{
			"best-effort pod with systemd", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + uidXSlice + ".slice/cri-containerd-" + idA + ".scope",
			podded(idA, "containerd", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod"+uidXSlice+".slice/cri-containerd-"+idA+".scope", uidX, "BestEffort"),
		},
		{"pod with cgroupfs", podDir + "/" + idA, podded(idA, "", podDir+"/"+idA, uidX, "Burstable")},
		{"pod with cgroupfs and v1", v1(podDir + "/" + idA), podded(idA, "", podDir+"/"+idA, uidX, "Burstable")},
		{"guaranteed pod with cgroupfs", "/kubepods/pod" + uidX + "/" + idA, podded(idA, "", "/kubepods/pod"+uidX+"/"+idA, uidX, "Guaranteed")},
		{"best-effort pod with cgroupfs", "/kubepods/besteffort/pod" + uidX + "/" + idA, podded(idA, "", "/kubepods/besteffort/pod"+uidX+"/"+idA, uidX, "BestEffort")},
		{"pod with cri-o and cgroupfs", podDir + "/crio-" + idA, podded(idA, "cri-o", podDir+"/crio-"+idA, uidX, "Burstable")},
		{"pod's own cgroup", podSlice, Placement{Workload: identity.Workload{Pod: identity.Pod{UID: uidX, QoSClass: "Burstable"}}}},
		{"pod's own cgroup with cgroupfs", podDir, Placement{Workload: identity.Workload{Pod: identity.Pod{UID: uidX, QoSClass: "Burstable"}}}},
		{"monitor of cri-o in the pod", podSlice + "/crio-conmon-" + idA + ".scope", Placement{Workload: identity.Workload{Pod: identity.Pod{UID: uidX, QoSClass: "Burstable"}}}},
		{"monitor of cri-o", "/system.slice/crio-conmon-" + idA + ".scope", Placement{}},
		{
			"static pod", "/kubepods/burstable/pod" + uidStatic + "/" + idA,
			podded(idA, "", "/kubepods/burstable/pod"+uidStatic+"/"+idA, uidStatic, "Burstable"),
		},
		{
			"static pod with systemd", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uidStatic + ".slice/crio-" + idA + ".scope",
			podded(idA, "cri-o", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"+uidStatic+".slice/crio-"+idA+".scope", uidStatic, "Burstable"),
		},
		{
			"kubelet with a cgroup root", "/team/kubepods/burstable/pod" + uidX + "/" + idA,
			podded(idA, "", "/team/kubepods/burstable/pod"+uidX+"/"+idA, uidX, "Burstable"),
		},
		{
			"kind", "/system.slice/docker-" + idA + ".scope" + kindSlices + "/cri-containerd-" + idB + ".scope",
			podded(idA+"/"+idB, "containerd", "/system.slice/docker-"+idA+".scope"+kindSlices+"/cri-containerd-"+idB+".scope", idA+"/"+uidY, "Burstable"),
		},
		{
			"kind, node's own process", "/docker/" + idA + "/kubelet.slice/kubelet.service",
			contained(idA, "docker", "/docker/"+idA),
		},
		{
			"kind, pod's own cgroup: the node is not in the pod", "/docker/" + idA + kindSlices,
			contained(idA, "docker", "/docker/"+idA),
		},
		{
			"kind in a pod", podDir + "/" + idA + kindSlices + "/cri-containerd-" + idB + ".scope",
			podded(idA+"/"+idB, "containerd", podDir+"/"+idA+kindSlices+"/cri-containerd-"+idB+".scope", idA+"/"+uidY, "Burstable"),
		},
		{
			"docker in a pod stays in the pod", podDir + "/" + idA + "/docker/" + idB,
			podded(idA+"/"+idB, "docker", podDir+"/"+idA+"/docker/"+idB, uidX, "Burstable"),
		},
		{
			"systemd path taken literally",
			"/system.slice/containerd.service/kubepods-burstable-pod" + uidXSlice + ".slice:cri-containerd:" + idA,
			podded(idA, "containerd", "/system.slice/containerd.service/kubepods-burstable-pod"+uidXSlice+".slice:cri-containerd:"+idA, uidX, "Burstable"),
		},
		{
			"systemd path taken literally, v1", "11:cpu,cpuacct:/system.slice/containerd.service/kubepods-pod" + uidXSlice + ".slice:cri-containerd:" + idA + "/leaf\n",
			podded(idA, "containerd", "/system.slice/containerd.service/kubepods-pod"+uidXSlice+".slice:cri-containerd:"+idA, uidX, "Guaranteed"),
		},
		{"pod outside of kubepods", "/mygroup/pod" + uidX, Placement{}},
		{"podman below kubepods is no pod", "/kubepods/burstable/podman", Placement{}},
		{"pod slice of something else", "/notkubepods-pod" + uidXSlice + ".slice", Placement{}},
		{"class alone", "/kubepods.slice/kubepods-burstable.slice", Placement{}},

		// containerd without Kubernetes
		{"nerdctl", "/system.slice/nerdctl-" + idA + ".scope", contained(idA, "containerd", "/system.slice/nerdctl-"+idA+".scope")},
		{"nerdctl with cgroupfs", "/default/" + idA, contained(idA, "containerd", "/default/"+idA)},
		{"ctr with a name for an id", "/default/redis-1", contained("redis-1", "containerd", "/default/redis-1")},
		{"default is a containerd namespace at the top only", "/mygroup/default/redis", Placement{}},
		{"a unit is not a container of ctr", "/default/redis.service", Placement{}},

		// Amazon ECS
		{"ecs", "/ecs/" + task + "/" + idA, contained(idA, "docker", "/ecs/"+task+"/"+idA)},
		{"ecs with the cluster's name", "/ecs/prod/" + uidX + "/" + idA, contained(idA, "docker", "/ecs/prod/"+uidX+"/"+idA)},
		{"ecs task without a container", "/ecs/" + task, Placement{}},
		{"ecs with cgroup v2", "/ecstasks.slice/ecstasks-" + task + ".slice/docker-" + idA + ".scope", contained(idA, "docker", "/ecstasks.slice/ecstasks-"+task+".slice/docker-"+idA+".scope")},
		{"fargate", "/ecs/" + task + "/" + task + "-2531612879", contained(task+"-2531612879", "containerd", "/ecs/"+task+"/"+task+"-2531612879")},
		{"fargate's shape elsewhere", "/other/" + task + "-2531612879", Placement{}},

		// Cloud Foundry
		{"garden", "/garden/" + gardenID, contained(gardenID, "garden", "/garden/"+gardenID)},
		{"garden in its unit", "/system.slice/garden.service/garden/" + gardenID, contained(gardenID, "garden", "/system.slice/garden.service/garden/"+gardenID)},
		{"garden with a tag, throttled", "/garden-2/bad/" + uidX, contained(uidX, "garden", "/garden-2/bad/"+uidX)},
		{"garden directly in its unit", "/system.slice/garden.service/" + gardenID, contained(gardenID, "garden", "/system.slice/garden.service/"+gardenID)},
		{"a gardener is no garden", "/gardener/" + gardenID, Placement{}},

		// LXC
		{"lxc", "/lxc.payload.web", contained("web", "lxc", "/lxc.payload.web")},
		{"lxc with systemd inside", v1("/lxc.payload.web") + "1:name=systemd:/lxc.payload.web/system.slice/ssh.service\n0::/lxc.payload.web/init.scope\n", contained("web", "lxc", "/lxc.payload.web")},
		{"lxd in a project", "/lxc.payload.proj_web-1/init.scope", contained("proj_web-1", "lxc", "/lxc.payload.proj_web-1")},
		{"lxc's monitor", "/lxc.monitor.web", Placement{}},
		{"old lxc", "/lxc/web/init.scope", contained("web", "lxc", "/lxc/web")},
		{"lxc with a pattern", "/lxc/web/payload/init.scope", contained("web", "lxc", "/lxc/web/payload")},
		{"lxc's monitor with a pattern", "/lxc/web/monitor", Placement{}},
		{"lxc in a directory", "/lxc/lxc.payload.web", contained("web", "lxc", "/lxc/lxc.payload.web")},
		{"lxc's monitor in a directory", "/lxc/lxc.monitor.web", Placement{}},
		{"proxmox container", "/lxc/101/ns/system.slice/cron.service", contained("101", "lxc", "/lxc/101")},
		{"proxmox container's monitor", "/lxc.monitor/101", Placement{}},
		{"lxc in lxc", "/lxc.payload.a/lxc.payload.b", contained("a/b", "lxc", "/lxc.payload.a/lxc.payload.b")},
		{"docker in lxc", "/lxc.payload.a/docker/" + idA, contained("a/"+idA, "docker", "/lxc.payload.a/docker/"+idA)},
		{"lxc's service", "/system.slice/lxc.service", Placement{}},

		// systemd-nspawn
		{"nspawn", `/machine.slice/machine-my\x2dbox.scope/payload/system.slice/a.service`, contained("my-box", "systemd-nspawn", `/machine.slice/machine-my\x2dbox.scope/payload`)},
		{"nspawn's own process", `/machine.slice/machine-my\x2dbox.scope/supervisor`, Placement{}},
		{"nspawn service", "/machine.slice/systemd-nspawn@box.service/payload", contained("box", "systemd-nspawn", "/machine.slice/systemd-nspawn@box.service/payload")},
		{"nspawn service's supervisor", "/machine.slice/systemd-nspawn@box.service/supervisor", Placement{}},
		{
			"nspawn service's supervisor, where another hierarchy does not distinguish it",
			"4:cpu,cpuacct:/machine.slice/systemd-nspawn@box.service\n0::/machine.slice/systemd-nspawn@box.service/supervisor\n", Placement{},
		},
		{"nspawn with v1", v1("/machine.slice/machine-box.scope"), contained("box", "systemd-nspawn", "/machine.slice/machine-box.scope")},
		{"nspawn's machine with a name like a driver's", `/machine.slice/machine-ch\x2dbox.scope/payload`, contained("ch-box", "systemd-nspawn", `/machine.slice/machine-ch\x2dbox.scope/payload`)},
		{"machine of another maker", "/machine.slice/machine-vm.scope", Placement{}},

		// Kata
		{"kata sandbox", podDir + "/kata_" + idA, podded(idA, "kata", podDir+"/kata_"+idA, uidX, "Burstable")},
		{"kata without a pod", "/kata_" + idA, contained(idA, "kata", "/kata_"+idA)},
		{"kata's overhead", "/kata_overhead/" + idA, contained(idA, "kata", "/kata_overhead/"+idA)},
		{"kata's overhead below the pod's path", "/kata_overhead" + podDir + "/" + idA, podded(idA, "kata", "/kata_overhead"+podDir+"/"+idA, uidX, "Burstable")},
		{"kata's overhead itself", "/kata_overhead", Placement{}},

		// Mesos
		{"mesos", "/mesos/" + uidX, contained(uidX, "mesos", "/mesos/"+uidX)},
		{"mesos with v2", "/mesos/" + uidX + "/leaf", contained(uidX, "mesos", "/mesos/"+uidX)},
		{"mesos, nested", "/mesos/" + uidX + "/mesos/" + uidY + "/leaf", contained(uidX+"/"+uidY, "mesos", "/mesos/"+uidX+"/mesos/"+uidY)},

		{"mesos has no directories between", "/mesos/group/" + uidX, Placement{}},

		// Virtual machines
		{"libvirt", `/machine.slice/machine-qemu\x2d1\x2dvm1.scope`, inVM("machine-qemu-1-vm1", "vm1", "qemu")},
		{"libvirt emulator", `/machine.slice/machine-qemu\x2d1\x2dvm1.scope/libvirt/emulator`, inVM("machine-qemu-1-vm1", "vm1", "qemu")},
		{"libvirt vCPU", `/machine.slice/machine-qemu\x2d1\x2dvm1.scope/libvirt/vcpu0`, inVM("machine-qemu-1-vm1", "vm1", "qemu")},
		{"libvirt before 7.1", `/machine.slice/machine-qemu\x2d12\x2dmy\x2dvm.scope/vcpu3`, inVM("machine-qemu-12-my-vm", "my-vm", "qemu")},
		{"libvirt partition", `/machine.slice/machine-production.slice/machine-qemu\x2d2\x2dvm2.scope/libvirt/emulator`, inVM("machine-qemu-2-vm2", "vm2", "qemu")},
		{"libvirt without numbers", `/machine.slice/machine-qemu\x2dinstance\x2d01.scope`, inVM("machine-qemu-instance-01", "instance-01", "qemu")},
		{"libvirt embedded", `/machine.slice/machine-qemu\x2dembed\x2d0a1b2c3d\x2d1\x2dvm.scope`, inVM("machine-qemu-embed-0a1b2c3d-1-vm", "vm", "qemu")},
		{"libvirt without systemd", "/machine/qemu-1-vm-eight.libvirt-qemu/emulator", inVM("qemu-1-vm-eight", "vm-eight", "qemu")},
		{"libvirt vCPU without systemd", "/machine/qemu-1-vm-eight.libvirt-qemu/vcpu0", inVM("qemu-1-vm-eight", "vm-eight", "qemu")},
		{"libvirt partition without systemd", "/machine/production.partition/qemu-1-vm.libvirt-qemu/emulator", inVM("qemu-1-vm", "vm", "qemu")},
		{"old libvirt without systemd", "/machine/instance-01.libvirt-qemu/vcpu0", inVM("instance-01", "instance-01", "qemu")},
		{
			"libvirt in some hierarchies only",
			"12:rdma:/\n11:devices:/machine/qemu-1-vm.libvirt-qemu/emulator\n8:pids:/user.slice/user-118.slice/session-5.scope\n1:name=systemd:/user.slice/user-118.slice/session-5.scope\n0::/user.slice/user-118.slice/session-5.scope\n",
			inVM("qemu-1-vm", "vm", "qemu"),
		},
		{"libvirt with cloud-hypervisor", `/machine.slice/machine-ch\x2d1\x2dvm1.scope`, inVM("machine-ch-1-vm1", "vm1", "cloud-hypervisor")},
		{"proxmox machine", "/qemu.slice/100.scope", inVM("100", "", "qemu")},
		{
			"libvirt in a container names the container: two of them may count alike",
			"/docker/" + idA + "/machine/qemu-1-vm.libvirt-qemu/emulator",
			Placement{
				Workload: identity.Workload{
					Container: identity.Container{ID: idA, Runtime: "docker"},
					VM:        identity.VM{ID: idA + "/qemu-1-vm", Name: "vm", Hypervisor: "qemu"},
				},
				Cgroup: "/docker/" + idA,
			},
		},
		{"a user's machine names the user's manager", userUnit + `/machine-qemu\x2d1\x2dvm.scope`, inVM("user@1000.service/machine-qemu-1-vm", "vm", "qemu")},
		{"a unit with a name that cannot be exported", "/user@\xe4.service/machine-qemu\\x2d1\\x2dvm.scope", inVM(`"user@\xe4.service"/machine-qemu-1-vm`, "vm", "qemu")},
		{"libvirt's lxc", `/machine.slice/machine-lxc\x2d12345\x2ddemo.scope/init.scope`, contained("lxc-12345-demo", "lxc", `/machine.slice/machine-lxc\x2d12345\x2ddemo.scope`)},
		{"libvirt's lxc without systemd", "/machine/lxc-11111-container1.libvirt-lxc", contained("lxc-11111-container1", "lxc", "/machine/lxc-11111-container1.libvirt-lxc")},
		{"libvirt's daemon", "/system.slice/libvirtd.service", Placement{}},
		{"jailed firecracker is no container", "/firecracker/" + idA, Placement{}},

		// Slurm
		{"slurm step", slurmScope + "/job_7/step_0/user/task_0", inJob("7", "0", slurmScope+"/job_7/step_0")},
		{"slurmstepd", slurmScope + "/job_7/step_0/slurm", inJob("7", "0", slurmScope+"/job_7/step_0")},
		{"slurm batch script", slurmScope + "/job_7/step_batch/user/task_0", inJob("7", "batch", slurmScope+"/job_7/step_batch")},
		{"slurm session of ssh", slurmScope + "/job_7/step_extern/user/task_special", inJob("7", "extern", slurmScope+"/job_7/step_extern")},
		{"slurm's salloc", slurmScope + "/job_7/step_interactive/user/task_0", inJob("7", "interactive", slurmScope+"/job_7/step_interactive")},
		{"slurm heterogeneous step", slurmScope + "/job_7/step_0+1/user/task_0", inJob("7", "0+1", slurmScope+"/job_7/step_0+1")},
		{"slurm of several nodes on a host", "/system.slice/n-1_slurmstepd.scope/job_7/step_0/user/task_0", inJob("7", "0", "/system.slice/n-1_slurmstepd.scope/job_7/step_0")},
		{"slurm job itself", slurmScope + "/job_7", inJob("7", "", slurmScope+"/job_7")},
		{"slurm with v1", v1("/slurm/uid_1000/job_7/step_0/task_0"), inJob("7", "0", "/slurm/uid_1000/job_7/step_0")},
		{"slurm with v1 and a node's name", v1("/slurm_n1/uid_1000/job_7/step_batch/task_0"), inJob("7", "batch", "/slurm_n1/uid_1000/job_7/step_batch")},
		{
			"slurm with v1, the step in some hierarchies", "9:memory:/slurm/uid_1/job_7/step_0/task_0\n4:cpu,cpuacct:/slurm/uid_1/job_7\n1:name=systemd:/system.slice/slurmd.service\n",
			inJob("7", "0", "/slurm/uid_1/job_7/step_0"),
		},
		{"podman in a slurm job", slurmScope + "/job_7/step_0/user/task_0/libpod-" + idA, Placement{
			Workload: identity.Workload{Container: identity.Container{ID: "slurmstepd.scope/" + idA, Runtime: "podman"}, Job: identity.SlurmStep{ID: "7", Step: "0"}},
			Cgroup:   slurmScope + "/job_7/step_0/user/task_0/libpod-" + idA,
		}},
		{"slurm in a container", "/docker/" + idA + slurmScope + "/job_7/step_0", Placement{
			Workload: identity.Workload{Container: identity.Container{ID: idA, Runtime: "docker"}, Job: identity.SlurmStep{ID: idA + "/7", Step: "0"}}, Cgroup: "/docker/" + idA,
		}},
		{"a job within a job is its outer one's", slurmScope + "/job_7/step_0/user/task_0" + slurmScope + "/job_8/step_9", inJob("7", "0", slurmScope+"/job_7/step_0")},
		{"slurmd", slurmScope + "/system", Placement{}},
		{"slurm job without a number", slurmScope + "/job_x/step_0", Placement{}},
		{"slurm step of no shape", slurmScope + "/job_7/step_x", inJob("7", "", slurmScope+"/job_7")},
		{"a job below no scope of slurm's", "/system.slice/slurm.service/job_7/step_0", Placement{}},
		{"a job below a directory of the scope", slurmScope + "/x/job_7/step_0", Placement{}},
		{"a user's pretended job", userUnit + "/slurmstepd.scope/job_7/step_0", Placement{}},
		{"a user's pretended job as of v1", userUnit + "/slurm/uid_1000/job_7/step_0", Placement{}},
		{"a unit's pretended job", "/system.slice/ci.service/slurmstepd.scope/job_7/step_0", Placement{}},
		{"a container with a name like slurm's scope", "/lxc.payload.a_slurmstepd.scope/job_7/step_0", contained("a_slurmstepd", "lxc", "/lxc.payload.a_slurmstepd.scope")},
		{"a container with the name of slurm's directory", "/default/slurm/uid_0/job_7", contained("slurm", "containerd", "/default/slurm")},

		// None of these
		{"root", "/", Placement{}},
		{"init", "/init.scope", Placement{}},
		{"service", "/system.slice/ssh.service", Placement{}},
		{"session", "/user.slice/user-1000.slice/session-3.scope", Placement{}},
		{"desktop application", userUnit + "/app.slice/app-gnome-firefox-1234.scope", Placement{}},
		{"container engines", "/system.slice/docker.service", Placement{}},
		{"32 hex digits in an undocumented place", "/mygroup/" + task, Placement{}},
		{"unit with hex digits in its name", "/system.slice/backup-" + idA + ".service", Placement{}},
		{"podman's health check", "/system.slice/" + idA + ".service", Placement{}},
		{"docker scope without an id", "/system.slice/docker-.scope", Placement{}},
		{"docker scope with a short id", "/system.slice/docker-" + idA[:63] + ".scope", Placement{}},
		{"docker scope with a long id", "/system.slice/docker-" + idA + "a.scope", Placement{}},
		{"docker mount", "/system.slice/docker-" + idA + ".mount", Placement{}},
		{"upper-case digits", "/docker/" + strings.ToUpper(idA), Placement{}},

		// Formats of the file
		{"empty", "0::", Placement{}},
		{"removed cgroup", "/docker/" + idA + " (deleted)", contained(idA, "docker", "/docker/"+idA)},
		{"removed scope", podSlice + "/cri-containerd-" + idA + ".scope (deleted)", podded(idA, "containerd", podSlice+"/cri-containerd-"+idA+".scope", uidX, "Burstable")},
		{"no newline", "5:cpuacct:/docker/" + idA, contained(idA, "docker", "/docker/"+idA)},
		{"lines that are none", "\n:\n::\nx\n1:2\n0:x\n0::relative/" + idA + "\n3:cpu:/docker/" + idA + "\n", contained(idA, "docker", "/docker/"+idA)},
		{"colons in the path", "0::/a:b/docker/" + idA + "/c:d:e\n", contained(idA, "docker", "/a:b/docker/"+idA)},
		{"sibling in a cgroup namespace", "/../" + idB, contained(idB, "", "/../"+idB)},
		{"docker scope from a cgroup namespace", "/../docker-" + idB + ".scope", contained(idB, "docker", "/../docker-"+idB+".scope")},
		{"pod of the same class from a cgroup namespace", "/../../pod" + uidX + "/" + idA, podded(idA, "", "/../../pod"+uidX+"/"+idA, uidX, "")},
		{"pod of another class from a cgroup namespace", "/../../../besteffort/pod" + uidX + "/" + idA, podded(idA, "", "/../../../besteffort/pod"+uidX+"/"+idA, uidX, "BestEffort")},
		{"pod slice from a cgroup namespace", "/../../kubepods-burstable-pod" + uidXSlice + ".slice/cri-containerd-" + idA + ".scope", podded(idA, "containerd", "/../../kubepods-burstable-pod"+uidXSlice+".slice/cri-containerd-"+idA+".scope", uidX, "Burstable")},
		{"containerd namespace from a cgroup namespace", "/../../default/redis", contained("redis", "containerd", "/../../default/redis")},

		// Hierarchies that disagree
		{"v1 knows, v2 does not", "4:cpu,cpuacct:/docker/" + idA + "\n1:name=systemd:/system.slice/docker.service\n0::/system.slice/containerd.service\n", contained(idA, "docker", "/docker/"+idA)},
		{"v2 before v1", "4:cpu,cpuacct:/docker/" + idA + "\n0::/docker/" + idB + "\n", contained(idB, "docker", "/docker/"+idB)},
		{"cpuacct before the others", "9:memory:/docker/" + idA + "\n4:cpuacct:/docker/" + idB + "\n3:cpu:/docker/" + idC + "\n1:name=systemd:/docker/" + idA + "\n", contained(idB, "docker", "/docker/"+idB)},
		{"cpu before systemd", "9:memory:/docker/" + idA + "\n3:cpu,cpuset:/docker/" + idC + "\n1:name=systemd:/docker/" + idA + "\n", contained(idC, "docker", "/docker/"+idC)},
		{"systemd before the others", "9:memory:/docker/" + idA + "\n1:name=systemd:/docker/" + idB + "\n", contained(idB, "docker", "/docker/"+idB)},
		{"innermost before v2", "4:memory:/docker/" + idA + "/docker/" + idB + "\n0::/docker/" + idA + "\n", contained(idA+"/"+idB, "docker", "/docker/"+idA+"/docker/"+idB)},
		{
			"kata: the pod is more than the overhead", "4:memory:/kata_overhead/" + idA + "\n3:cpu,cpuacct:" + podDir + "/kata_" + idA + "\n0::/kata_overhead/" + idA + "\n",
			podded(idA, "kata", podDir+"/kata_"+idA, uidX, "Burstable"),
		},
	}
}

func (c cgroupCase) content() string {
	if strings.HasPrefix(c.file, "/") {
		return "0::" + c.file + "\n"
	}
	return c.file
}

// The lines are in any order, and the result shares no memory with them.
func TestParseCgroupFindsWhatTheMakersDocument(t *testing.T) {
	t.Parallel()
	cases := append(cgroupCases(), cgroupCase{
		name: "equals in hierarchies without preference",
		file: "9:memory:/docker/" + idB + "\n8:pids:/docker/" + idA + "\n7:rdma:/docker/" + idC + "\n",
		want: contained(idA, "docker", "/docker/"+idA),
	})
	shuffle := rand.New(rand.NewPCG(1, 2))
	for _, c := range cases {
		checkPlacement(t, c.content(), ParseCgroup([]byte(c.content())))
		lines := strings.Split(strings.TrimSuffix(c.content(), "\n"), "\n")
		for range 10 {
			file := []byte(strings.Join(lines, "\n"))
			got := ParseCgroup(file)
			got.Unit = identity.SystemdUnit{} // see TestUnitsAreNamedAsBySystemd
			for i := range file {
				file[i] = 'X'
			}
			require.Equal(t, c.want, got, "%s: %q", c.name, lines)
			shuffle.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		}
	}
}

// checkPlacement checks a placement against the file that it was read from.
func checkPlacement(t *testing.T, file string, p Placement) {
	t.Helper()
	var paths, components []string
	for line := range strings.SplitSeq(file, "\n") {
		if f := strings.SplitN(line, ":", 3); len(f) == 3 {
			paths = append(paths, f[2])
			components = append(components, strings.Split(strings.TrimSuffix(f[2], " (deleted)"), "/")...)
		}
	}
	within := func(id string) bool {
		return id == "" || strings.Contains(id, ellipsis) || slices.ContainsFunc(components, func(c string) bool {
			return strings.Contains(c, id) || strings.Contains(unescapeUnit(c), id) ||
				strings.Contains(strings.ReplaceAll(c, "_", "-"), id)
		})
	}
	if id := p.Container.ID; !within(unqualified(id)) || !printable(id) {
		t.Errorf("container id %q is made up", id)
	}
	if uid := unqualified(p.Pod.UID); !within(uid) || uid != "" && !isPodUID(uid) && !strings.Contains(uid, ellipsis) {
		t.Errorf("pod uid %q is made up", p.Pod.UID)
	}
	if (p.Container.ID == "" && p.Job.ID == "") != (p.Cgroup == "") || (p.Container.ID == "" && p.Container != identity.Container{}) {
		t.Errorf("container %+v at %q", p.Container, p.Cgroup)
	}
	if p.Cgroup != "" && !slices.ContainsFunc(paths, func(path string) bool {
		rest, ok := strings.CutPrefix(path, p.Cgroup)
		return ok && (rest == "" || rest[0] == '/' || rest == " (deleted)")
	}) {
		t.Errorf("cgroup %q leads to no path", p.Cgroup)
	}
	if !within(unqualified(p.VM.ID)) || !printable(p.VM.ID) || !printable(p.VM.Name) {
		t.Errorf("VM %+v is made up", p.VM)
	}
	if job := unqualified(p.Job.ID); job != "" && !slices.Contains(components, "job_"+job) && !strings.Contains(job, ellipsis) ||
		p.Job.Step != "" && (job == "" || !within(p.Job.Step)) {
		t.Errorf("job %+v is made up", p.Job)
	}
	if unit := p.Unit.Name; unit != "" && !slices.Contains(components, unit) && !slices.Contains(components, "_"+unit) {
		t.Errorf("unit %q is made up", unit)
	}
	if p.VM.ID == "" && p.VM != (identity.VM{}) {
		t.Errorf("VM without an id: %+v", p.VM)
	}
}

func FuzzParseCgroup(f *testing.F) {
	for _, c := range cgroupCases() {
		f.Add([]byte(c.content()))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := ParseCgroup(b)
		checkPlacement(t, string(b), p)

		lines := strings.Split(string(b), "\n")
		slices.Reverse(lines)
		if again := ParseCgroup([]byte(strings.Join(lines, "\n"))); again != p {
			t.Errorf("with the lines reversed %+v, not %+v", again, p)
		}
		own := ProcessCgroup(b)
		if again := ProcessCgroup([]byte(strings.Join(lines, "\n"))); again != own {
			t.Errorf("with the lines reversed in %q, not %q", again, own)
		}
		if own != "" && !strings.Contains(string(b), ":"+own) {
			t.Errorf("in %q, which is not there", own)
		}
		if own != "" && !strings.HasPrefix(absolutePath("/a/b", own), "/") {
			t.Errorf("%q is nowhere", own)
		}
	})
}

func TestAProcesssCgroupIsThatOfTheBestHierarchyOutsideTheRoot(t *testing.T) {
	for text, want := range map[string]string{
		"0::/a/b\n":           "/a/b",
		"0::/a/b (deleted)\n": "/a/b",
		"0::/\n":              "/",
		"":                    "",
		"junk\n":              "",
		"9:memory:/m\n1:name=systemd:/s\n0::/u\n":    "/u",
		"9:memory:/m\n1:name=systemd:/s\n0::/\n":     "/s",
		"9:memory:/m\n4:cpu,cpuacct:/c\n0::/\n":      "/c",
		"0::/\n4:cpu,cpuacct:/\n9:memory:/m\n":       "/m",
		"9:memory:/m:with:colons\n4:cpu,cpuacct:/\n": "/m:with:colons",
	} {
		assert.Equal(t, want, ProcessCgroup([]byte(text)), "%q", text)
	}
}
