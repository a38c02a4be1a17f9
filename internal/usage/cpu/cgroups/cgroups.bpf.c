//go:build ignore

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Tells the id and the path of every cgroup that is created in the v2 hierarchy.
//
// Only the fields that are used are declared: their places in the running kernel are found when the
// program is loaded (BPF CO-RE).
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

/* include/linux/cgroup.h, TRACE_CGROUP_PATH_LEN: the kernel cuts a longer path. */
#define PATH_LENGTH 1024

/* A cgroup. Its record ends with its path. */
struct created {
	__u64 id;
	char path[PATH_LENGTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} creations SEC(".maps");

/* The kernel holds a lock around the tracepoint, with interrupts off (kernel/cgroup/cgroup-internal.h,
 * TRACE_CGROUP_PATH), so one is enough. */
struct created record;

/* What the ring has no room for is not counted: a walk through the tree finds it too. */
SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(on_mkdir, struct cgroup *cgrp, const char *path)
{
	long length;

	if (cgrp->root->hierarchy_id != 0) /* a v1 hierarchy, with ids of its own */
		return 0;
	record.id = cgrp->kn->id;
	length = bpf_probe_read_kernel_str(record.path, sizeof(record.path), path);
	if (length <= 1 || length >= PATH_LENGTH)
		return 0;
	/* Without the last byte, which is 0. */
	bpf_ringbuf_output(&creations, &record, offsetof(struct created, path) + ((length - 1) & (PATH_LENGTH - 1)),
			   BPF_RB_NO_WAKEUP);
	return 0;
}
