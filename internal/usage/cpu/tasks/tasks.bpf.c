//go:build ignore

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Lists every process with its CPU time, and catches the final CPU time of every one that ends.
#include "tasks.h"

/* What is left of a process that ended. */
struct ended {
	__u64 start;
	__u64 run; /* all that it used */
	__u64 cgroup;
	__u32 pid;
	__u32 parent;
	__u8 comm[16];
	__u32 uid;
	__u32 unused;
};

typedef struct {
	int counter;
} atomic_t;

typedef struct refcount_struct {
	atomic_t refs;
} CORE refcount_t;

/* The part of signal_struct that only this program reads. */
struct signal_struct___references {
	refcount_t sigcnt; /* the tasks that were not freed */
} CORE;

/* A process by what no other has at the same time: the kernel uses the memory of a signal_struct again. */
struct process_key {
	__u64 signal;
	__u64 pid;
	__u64 start;
};

/* Resized before it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct process);
} processes SEC(".maps");

/* By what a scan sees that a process has not changed since the one before: all else of one with a single thread
 * changes only when it runs. */
struct seen {
	__u64 start;
	__u64 run; /* of a process with one thread: the thread's */
	__u64 cgroups;
	__u64 task; /* the address of its first thread */
	__u32 pid;
	__u32 alone; /* for how many scans it had one thread, up to SETTLED */
};

/* The time of a thread that ended may show a moment after the thread is gone. */
#define SETTLED 2

/* By how many tasks memory is read ahead. */
#define AHEAD 8

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seen);
} seen SEC(".maps");

/* The addresses of the threads of processes with several, in the order in which the scan before came to them. Resized before
 * it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} threads SEC(".maps");

/* Which processes changed, by their places in the array. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} changes SEC(".maps");

/* How many domains the node's CPUs are divided into, 0 where nothing is divided: then the verifier removes all that is
 * about domains. Only the times of processes that ended are divided here. */
const volatile __u32 domains = 0;
#define MAX_DOMAINS 16

/* The domain of each CPU. Resized before it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} domain_of SEC(".maps");

/* What scan is told, and tells. */
struct scanned {
	__u32 all;       /* in: describe those that did not change, too */
	__u32 processes; /* how many there are, which may be more than the array holds */
	__u32 same;      /* in: -1; how many of them, from the first, are the same as in the scan before */
	__u32 changed;   /* how many of these are in changes */
	__u64 elapsed;   /* in: ns since the last scan, of all processes or of those that ran; 0 in the first */
	__u32 slices;    /* how many there are, which may be more than the array holds */
	__u32 threads;   /* how many there are of processes with several */
};

/* Resized before it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} endings SEC(".maps");

/* The size of endings in bytes. */
const volatile __u32 endings_size = 4096;

/* The number of wakeups while the second half of endings fills: a reader that misses the first one because two CPUs
 * crossed the mark at the same time gets the next one. */
#define WAKEUPS 32

/* The final times of threads that were freed before their process. For a process that it evicts the kernel's own sum is used,
 * which is a little short. Keys of threads that are freed after their process stay until they are evicted. Resized before it is
 * loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct process_key);
	__type(value, __u64);
} freed_threads SEC(".maps");

#define SLOTS 4096

/* How many keys of freed_threads there are by the end of their PID, or more: it may have forgotten some. A process whose count is 0
 * has no key, and most have not had a thread: to look here first costs a tenth of what it costs to look there. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} freed_keys SEC(".maps");

struct by_domain {
	__u64 run[MAX_DOMAINS];
};

/* The same by the domain that each of these threads was in last. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct process_key);
	__type(value, struct by_domain);
} freed_by_domain SEC(".maps");

const struct by_domain nothing = {};

/* Exits that did not fit into the ring, and the number of processes that lack the time of threads. */
struct {
	__u64 count;
	__u64 run;
	__u64 incomplete;
} lost;

/* When the program was attached, in ns since boot. Threads of older processes may have been freed before. */
__u64 attached = -1;

/* So that their layout is in the object's BTF. */
const struct process *unused_process __attribute__((unused));
const struct ended *unused_ended __attribute__((unused));
const struct scanned *unused_scanned __attribute__((unused));

/* Says that the process at a place changed. */
static __always_inline void note_change(struct scanned *result, __u32 at)
{
	__u32 next = result->changed;
	__u64 *place = bpf_map_lookup_elem(&changes, &next);

	if (place)
		*place = at;
	result->changed = next + 1;
}

/* The kernel's lists lead from task to task, so following them waits for memory at each task. That is most of what a scan
 * costs. What follows has the memory of a later task read at the same time. The task may have ended: what is read is not used,
 * and where there is no memory a program reads 0. */
static __always_inline void read_ahead(__u32 at)
{
	struct seen *later;

	at += AHEAD;
	later = bpf_map_lookup_elem(&seen, &at);
	if (later)
		(void)*(struct list_head *volatile *)&untrusted((struct task_struct *)later->task)->tasks.next;
}

/* The same for a thread of a process with several, and notes where this one is. */
static __always_inline void read_thread_ahead(struct scanned *result, struct task_struct *t)
{
	__u32 at = result->threads;
	__u64 *address = bpf_map_lookup_elem(&threads, &at);

	result->threads = at + 1;
	if (address && *address != (__u64)t)
		*address = (__u64)t;
	at += AHEAD;
	address = bpf_map_lookup_elem(&threads, &at);
	if (address)
		(void)*(struct list_head *volatile *)&untrusted((struct task_struct *)*address)->thread_node.next;
}

/* Adds the threads of a process to p, to the time of those that ended. Only if that shows that one ran what each of them used is
 * looked at, or if the process is new here. */
static __always_inline void add_threads(struct scanned *result, struct seen *s, struct process *p, struct task_struct *first)
{
	struct bpf_iter_task it;
	struct task_struct *t;
	__u64 latest = 0; /* when one last began to run */

	first = bpf_task_acquire(first);
	if (!first) /* all have ended meanwhile */
		return;
	bpf_iter_task_new(&it, first, PROCESS_THREADS);
	while ((t = bpf_iter_task_next(&it))) {
		__u64 arrived = arrival(t);

		read_thread_ahead(result, t);
		if (!is_released(t))
			p->run += t->se.sum_exec_runtime;
		if (arrived > latest) {
			latest = arrived;
			p->cpu = cpu_of(t);
		}
	}
	bpf_iter_task_destroy(&it);
	if (slicing && (s->alone || s->run != p->run)) {
		__u64 before = s->alone ? s->run : 0; /* what the first had used at the scan before */

		bpf_iter_task_new(&it, first, PROCESS_THREADS);
		while ((t = bpf_iter_task_next(&it))) {
			if (!is_released(t))
				add_thread(t, before);
			before = 0;
		}
		bpf_iter_task_destroy(&it);
	}
	bpf_task_release(first);
}

/* Brings the array of processes up to date. What is counted is counted in the result: the verifier would follow each count
 * of a variable that is compared. */
SEC("syscall")
int scan(struct scanned *result)
{
	struct bpf_iter_task it;
	struct task_struct *t;

	if (slicing)
		begin_slices(result->elapsed);
	bpf_rcu_read_lock();
	bpf_iter_task_new(&it, 0, ALL_PROCESSES);
	while ((t = bpf_iter_task_next(&it))) {
		struct task_struct *u = untrusted(t);
		__u32 at = result->processes, alone, tgid;
		__u64 start, sum;
		struct process *p;
		struct seen *s;

		read_ahead(at);
		s = bpf_map_lookup_elem(&seen, &at);
		alone = u->thread_node.next == u->thread_node.prev;
		start = t->start_boottime;
		sum = t->se.sum_exec_runtime;
		/* No later task at the same address has the same start, so its number need not be read. */
		if (s && s->task == (__u64)t && s->start == start && alone && s->alone == SETTLED && !result->all && s->run == sum &&
		    s->cgroups == (__u64)u->cgroups) {
			result->processes = at + 1;
			continue;
		}
		/* 0 is the idle task. A first thread has another number if exec has just made another the first: then the next scan
		 * lists the process. */
		tgid = t->tgid;
		if (tgid == 0 || (__u32)t->pid != tgid || is_released(t))
			continue;
		result->processes = at + 1;
		if (!s)
			continue;
		if (s->pid != tgid || s->start != start) {
			if (result->same > at)
				result->same = at;
			s->pid = tgid;
			s->start = start;
			s->run = -1;
			s->alone = 0;
		}
		s->task = (__u64)t;
		p = bpf_map_lookup_elem(&processes, &at);
		if (!p)
			continue;
		p->run = *(volatile unsigned long long *)&u->signal->sum_sched_runtime; /* before its threads */
		describe(p, t);
		if (alone) {
			if (!is_released(t))
				p->run += t->se.sum_exec_runtime;
			if (slicing)
				p->slice = 0;
			if (s->alone < SETTLED)
				s->alone++;
			note_change(result, at);
		} else {
			add_threads(result, s, p, t);
			if (slicing)
				p->slice = last_slice();
			s->alone = 0;
			sum = p->run;
			if (s->run != sum || s->cgroups != p->cgroups)
				note_change(result, at);
		}
		s->run = sum;
		s->cgroups = p->cgroups;
	}
	bpf_iter_task_destroy(&it);
	bpf_rcu_read_unlock();
	if (slicing)
		result->slices = sliced.slices;
	if (result->same > result->processes)
		result->same = result->processes;
	return 0;
}

struct bpf_iter_meta {
	struct seq_file *seq;
} CORE;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} CORE;

/* The same for kernels without open-coded iterators (before 6.7): one record per thread, by thread number, is
 * read as a stream, and the reader adds them up. */
SEC("iter/task")
int stream(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct process p = {};

	if (!t || t->tgid == 0)
		return 0;
	p.dead = *(volatile unsigned long long *)&t->signal->sum_sched_runtime;
	if (is_released(t))
		return 0;
	if (t->pid == t->tgid)
		describe(&p, t);
	else
		p.pid = t->tgid; /* no threads marks one that is no leader */
	p.run = t->se.sum_exec_runtime;
	if (slicing) {
		__u64 us = grown(t, 0, -1) / 1000;

		p.slice = us > (__u32)-1 ? (__u32)-1 : us;
		p.cpu = cpu_of(t);
	}
	bpf_seq_write(ctx->meta->seq, &p, sizeof(p));
	return 0;
}

/* The domain of the CPU that a task was on last. */
static __always_inline __u32 domain(struct task_struct *t)
{
	__u32 cpu = cpu_of(t), *of = bpf_map_lookup_elem(&domain_of, &cpu);

	return of ? *of : 0;
}

/* Notes in which domain a thread ended. */
static __always_inline void free_by_domain(struct task_struct *t, const struct process_key *key, __u64 run)
{
	struct by_domain *by = bpf_map_lookup_elem(&freed_by_domain, key);
	__u32 in = domain(t);

	if (!by) {
		bpf_map_update_elem(&freed_by_domain, key, &nothing, BPF_NOEXIST);
		by = bpf_map_lookup_elem(&freed_by_domain, key);
	}
	if (by && in < MAX_DOMAINS)
		__sync_fetch_and_add(&by->run[in], run);
}

/* Writes what all threads of a process used, by domain, behind its end: those that were freed before, if there were
 * several, and the last. */
static __always_inline void end_by_domain(struct task_struct *t, const struct process_key *key, __u32 several, __u64 *parts)
{
	struct by_domain *by = several ? bpf_map_lookup_elem(&freed_by_domain, key) : 0;
	__u32 in = domain(t);

	for (__u32 i = 0; i < domains && i < MAX_DOMAINS; i++)
		parts[i] = (by ? by->run[i] : 0) + (i == in ? t->se.sum_exec_runtime : 0);
	if (by)
		bpf_map_delete_elem(&freed_by_domain, key);
}

/* The count of the keys that a process's may be among. */
static __always_inline __u32 *keys_like(const struct process_key *key)
{
	__u32 slot = key->pid & (SLOTS - 1);

	return bpf_map_lookup_elem(&freed_keys, &slot);
}

/* Notes what a thread used that is freed before its process. */
static __always_inline void free_thread(struct task_struct *t, const struct process_key *key, __u64 run)
{
	__u64 *threads = bpf_map_lookup_elem(&freed_threads, key);
	__u32 *keys;

	if (domains)
		free_by_domain(t, key, run);
	if (!threads) {
		if (!bpf_map_update_elem(&freed_threads, key, &run, BPF_NOEXIST)) {
			keys = keys_like(key);
			if (keys)
				__sync_fetch_and_add(keys, 1);
			return;
		}
		threads = bpf_map_lookup_elem(&freed_threads, key); /* another CPU was faster */
	}
	if (threads)
		__sync_fetch_and_add(threads, run);
}

/* Returns what the threads used that were freed before their process, and forgets it. */
static __always_inline __u64 take_threads(const struct process_key *key, __u32 *keys)
{
	__u64 *threads = bpf_map_lookup_elem(&freed_threads, key), run;

	if (!threads)
		return 0;
	run = *threads;
	if (!bpf_map_delete_elem(&freed_threads, key))
		__sync_fetch_and_add(keys, -1);
	return run;
}

/* Whether the times of all threads of a process but its first one, t, are missing: freed_threads evicted them, or the kernel did not
 * call the program. All of them were freed, but run, the time of t and of freed threads, is less than the kernel's sum. */
static __always_inline int is_incomplete(struct task_struct *t, __u64 run, __u64 all)
{
	struct signal_struct___references *signal = (void *)untrusted(t)->signal;

	return run == t->se.sum_exec_runtime && run < all && t->start_boottime > attached &&
	       bpf_core_field_exists(signal->sigcnt.refs.counter) && signal->sigcnt.refs.counter == 1;
}

/* Returns the flags that submit a record of this size: they wake the reader when endings becomes half full, and do not
 * while it is emptier. */
static __always_inline __u64 wakeup(__u64 size)
{
	__u64 full = bpf_ringbuf_query(&endings, BPF_RB_AVAIL_DATA);

	if (full < endings_size / 2)
		return BPF_RB_NO_WAKEUP;
	return full % (endings_size / 2 / WAKEUPS) < size ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* Runs when a task is freed, after its last time on a CPU was counted: at sched_process_exit it is not, nor
 * mostly when the kernel adds it to signal->sum_sched_runtime (kernel/exit.c, __exit_signal). So the exact time
 * of a process is the sum of what its threads had when they were freed. A thread that is freed after its
 * process's first one is missing there; then the kernel's sum is what comes nearest. Neither is ever too much. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(on_free, struct task_struct *t)
{
	struct task_struct *u = untrusted(t);
	struct process_key key = {.signal = (__u64)u->signal, .pid = t->tgid};
	__u64 run = t->se.sum_exec_runtime, all = u->signal->sum_sched_runtime;
	__u32 *keys, several, size = sizeof(struct ended) + domains * sizeof(__u64);
	struct ended *e;

	if (t->pid != t->tgid) {
		key.start = u->group_leader->start_boottime;
		free_thread(t, &key, run);
		return 0;
	}
	key.start = t->start_boottime;
	keys = keys_like(&key);
	several = keys && *keys;
	if (keys && several)
		run += take_threads(&key, keys);
	if (is_incomplete(t, run, all))
		__sync_fetch_and_add(&lost.incomplete, 1);
	if (run < all)
		run = all;
	e = bpf_ringbuf_reserve(&endings, size, 0);
	if (!e) {
		if (domains && several)
			bpf_map_delete_elem(&freed_by_domain, &key);
		__sync_fetch_and_add(&lost.count, 1);
		__sync_fetch_and_add(&lost.run, run);
		return 0;
	}
	e->start = t->start_boottime;
	e->run = run;
	e->cgroup = u->cgroups->dfl_cgrp->kn->id;
	e->pid = t->tgid;
	e->parent = u->real_parent->tgid;
	e->uid = user_of(u);
	__builtin_memcpy(e->comm, t->comm, sizeof(e->comm));
	if (domains)
		end_by_domain(t, &key, several, (__u64 *)(e + 1));
	bpf_ringbuf_submit(e, wakeup(size + BPF_RINGBUF_HDR_SZ));
	return 0;
}
