// SPDX-License-Identifier: Apache-2.0

// Package drm reads which processes used the GPUs whose drivers report it in the kernel's own
// files: the DRM drivers in /proc/<pid>/fdinfo/<fd> (Documentation/gpu/drm-usage-stats.rst), and
// AMD's KFD, which ROCm computes with, in /sys/class/kfd. The drivers of NVIDIA report nothing
// there.
//
// # Clients
//
// Each time that a process opens a GPU, the driver makes a client with counters of its own. A
// client that several descriptors or processes share is counted once, for one of the processes: a
// parent rather than its child; else the one that started last, because brokers such as
// systemd-logind open a GPU on behalf of sessions that start later. A client stays with its process
// for as long as that has it, unless a better one is found.
//
// A counter that steps back counts nothing until it is above its highest value again. The kernel
// drops the counters of a client with the client, so its use between the last Read and its end is
// estimated: the rate of the previous interval for half of this interval. A process of which no Read
// saw a client has no estimate.
//
// # GPU time
//
// A GPU has several engine classes (render, copy, video) that work side by side, and some have
// several engines, their capacity. The time of a class is the sum of its clients' times by its
// capacity. A GPU is as busy as its busiest class: it works as long as any class does, but in what
// parts of the interval classes worked is not known, and that is the least that is true. What a
// process used is the sum over all classes, so that a process that renders and copies weighs more
// than one that only renders. Where a driver counts cycles, time is the interval times cycles by
// total cycles (xe), or cycles by the highest clock rate.
//
// What KFD's queues compute is not in fdinfo: that sums up the jobs of the kernel's scheduler
// (drivers/gpu/drm/amd/amdgpu, amdgpu_ctx_mgr_usage), and processes write to KFD's queues without
// the kernel. So KFD's compute and SDMA are two more engine classes of the same GPU. KFD shows how
// many compute units a process occupies at the moment; their share of all is taken for the whole
// interval. Of a GPU that does not count its waves (RDNA), gpu_busy_percent of the moment, less
// what DRM's clients used, is of the processes that hold the GPU's memory through KFD. Several of
// them cannot be distinguished.
//
// Nothing of this wakes a suspended GPU up. The driver xe would wake it to read its counters
// (show_run_ticks): a suspended one is not read, and its usage is 0 of 0 until it runs again and
// reports the rest. The time that it slept is not in its Total: it used nothing.
//
// # Finding clients
//
// Only descriptors that are known to be a client's are read each interval. New ones are found by
// looking at the descriptors of processes that ran since they were last looked at: those that are
// new, those with another number of descriptors than before (Linux 6.2), and the others when they
// are twice as old as at the last look, at most after a minute. The descriptors of a process whose
// number of them has not changed for a minute are counted every four seconds. What finding clients may
// cost in an interval is bounded. A process that sleeps opens nothing. The process that reads is not looked at: the
// number of its own descriptors changes with each client.
//
// A client that is found was opened since the last Read if its process did not run between the last
// look and that Read. All that it used belongs to the interval then. Of any other client, only what
// it uses from now on does, as its earlier work is not known to be of this interval.
//
// The text of a descriptor is read only if its link, /proc/<pid>/fd/<fd>, names a device node,
// because the texts of other descriptors, such as those of epoll, depend on locks that their
// process can hold forever. A scan of a process reads at most maxLook links and maxTexts texts, and
// none of a descriptor above lastDescriptor. At most maxOfProcess clients of a process are counted.
// A process with 100,000 DRM descriptors therefore costs the first Read a few milliseconds, and
// each later Read 512 texts.
//
// A process can still block reads of its files, by the locks of its directories and of a driver.
// These reads have a deadline (package stall). GPU usage whose read is blocked is unknown, and Read
// returns an error.
//
// # Permissions
//
// Reading the descriptors of other users' processes requires CAP_SYS_PTRACE, which a security
// module such as AppArmor may deny nevertheless, and CAP_DAC_READ_SEARCH for the directory of their
// links. Without these capabilities, the GPU usage of these processes is unknown, and Read returns
// an error in addition to the known usage. A process without descriptors uses no GPU and causes no
// error. If no GPU's driver counts, there is no error either. KFD's files are readable by all
// users, unless a device cgroup hides the GPU.
package drm
