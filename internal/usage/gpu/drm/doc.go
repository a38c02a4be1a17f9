// SPDX-License-Identifier: Apache-2.0

// Package drm reads from files of the kernel which processes used a GPU. DRM drivers provide
// /proc/PID/fdinfo/FD (Documentation/gpu/drm-usage-stats.rst), and AMD's KFD, which ROCm uses,
// provides /sys/class/kfd. NVIDIA's drivers have no such files.
//
// # Clients
//
// Each time a process opens a GPU, the driver creates a client with its own counters. A client that
// several descriptors or processes share is counted once, for one process. A parent has precedence
// over its child. Otherwise the process that started last has precedence, because brokers such as
// systemd-logind open GPUs on behalf of later sessions. A client stays with its process while the
// process has it, unless a process with a higher rank is found.
//
// A counter that decreases adds no time until it exceeds its highest value. The kernel removes the
// counters of a client together with the client, so the use between the last Read and the end of the
// client is estimated. The estimate is the rate of the previous interval for half of this interval.
// A client that existed at no Read has no estimate.
//
// # GPU time
//
// A GPU has several engine classes (render, copy, video) that work in parallel, and some classes
// have several engines, their capacity. The time of a class is the time of all its clients divided
// by its capacity. A GPU is as busy as its busiest class. This is a lower bound, because the files
// do not show whether the classes were active at the same time. The time of a process is the sum
// over all classes, so a process that renders and copies has a larger weight than a process that
// only renders. If a driver counts cycles, the time is the interval times cycles divided by total
// cycles (xe), or cycles divided by the highest clock rate.
//
// fdinfo does not include KFD's queues, because processes submit to them without the kernel's
// scheduler (drivers/gpu/drm/amd/amdgpu, amdgpu_ctx_mgr_usage). KFD's compute and SDMA are
// therefore two more engine classes of the same GPU. KFD reports the number of compute units that a
// process occupies at the moment. Their share of all units counts for the whole interval. GPUs that
// do not count their waves (RDNA) report only how busy they are (gpu_busy_percent). That time, less
// the time of DRM clients, is divided among the processes that hold memory of the GPU through KFD,
// in proportion to that memory.
//
// Reads do not wake a suspended GPU. The driver xe would wake it to read its counters
// (show_run_ticks), so clients of a suspended GPU are not read, and its Busy and Total are 0. When
// the GPU runs again, its usage includes the remaining counts, and its Total excludes the time that
// it was suspended.
//
// # Finding clients
//
// Each interval reads only descriptors of clients in the list. To find other clients, the source
// looks at processes: a look reads the links of all descriptors of a process. A look is due for a
// process that ran since the last look in one of these cases:
//
//   - The process is new.
//   - Its number of descriptors has changed (Linux 6.2).
//   - It is twice as old as at the last look, or the last look was a minute ago.
//
// If the number of descriptors has not changed for a minute, they are counted every four seconds.
// The cost of looks in an interval is bounded. A process that sleeps opens no GPU. The source never
// looks at its own process, because each text that it keeps open is a descriptor.
//
// If the process of a new client did not run between the last look and the last Read, the client was
// opened since that Read. In this case, all its use belongs to the interval. Otherwise only its
// future use counts, because its previous use may belong to earlier intervals.
//
// The text of a descriptor is read only if the descriptor is a DRM device. The texts of other
// descriptors, such as epoll, depend on locks that their process can hold forever. A
// process with 100,000 DRM descriptors costs the first Read a few milliseconds, and each later Read
// the texts of maxOfProcess clients.
//
// A process can still block reads of its files by the locks of its directories and of a driver.
// Reads have a deadline (kernfs.Guard), after which Read returns an error in addition to other
// usage.
//
// # Permissions
//
// Reading the descriptors of other users' processes requires CAP_SYS_PTRACE, which a security
// module such as AppArmor may deny nevertheless, and CAP_DAC_READ_SEARCH for the directory of their
// links. Without them, Read returns an error in addition to the usage of other processes. Processes
// without descriptors, and GPUs whose drivers count no time, cause no error. All users can read
// KFD's files, unless a device cgroup hides the GPU.
package drm
