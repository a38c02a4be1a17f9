//go:build ignore

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// BPF program that records the ID and the path of each cgroup created in the v2 hierarchy.
//
// The kernel types declare only the fields that the program reads. The loader resolves their
// offsets in the running kernel (BPF CO-RE).
#include <stddef.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define CORE __attribute__((preserve_access_index))

struct kernfs_node {
	__u64 id;
} CORE;

struct cgroup_root {
	int hierarchy_id;
} CORE;

struct cgroup {
	struct kernfs_node *kn;
	struct cgroup_root *root;
} CORE;

/* TRACE_CGROUP_PATH_LEN (include/linux/cgroup.h). The kernel truncates longer paths. */
#define PATH_LENGTH 1024

/* Record of a cgroup. Its size depends on the length of the path, which has no final NUL. */
struct created {
	__u64 id;
	char path[PATH_LENGTH];
};

/* Ring buffer: a record (struct created) for each new cgroup. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} creations SEC(".maps");

/* Buffer for a record. One suffices, because the kernel calls the tracepoint under a lock with
 * interrupts disabled (kernel/cgroup/cgroup-internal.h, TRACE_CGROUP_PATH). */
struct created record;

/* Records a new cgroup. Losses are not counted: if the ring buffer is full, user space finds the
 * cgroup when it walks the hierarchy. */
SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(on_mkdir, struct cgroup *cgrp, const char *path)
{
	long length;

	if (cgrp->root->hierarchy_id != 0) /* a v1 hierarchy, which has its own IDs */
		return 0;
	record.id = cgrp->kn->id;
	length = bpf_probe_read_kernel_str(record.path, sizeof(record.path), path);
	if (length <= 1 || length >= PATH_LENGTH)
		return 0;
	/* Without the final NUL. */
	bpf_ringbuf_output(&creations, &record, offsetof(struct created, path) + ((length - 1) & (PATH_LENGTH - 1)),
			   BPF_RB_NO_WAKEUP);
	return 0;
}
