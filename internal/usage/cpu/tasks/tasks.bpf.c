//go:build ignore

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// BPF programs that list all processes with their CPU time (scan, stream) and record the final
// CPU time of each process that exits (on_free).
#include "tasks.h"

/* Exit record of a process. If domains is set, the CPU time in each domain follows, as __u64 in
 * ns. If counting is set, the events follow, as __u64. */
struct ended {
	__u64 start; /* ns since boot */
	__u64 run;   /* total CPU time in ns */
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

/* The reference count of signal_struct, which only on_free reads. */
struct signal_struct___references {
	refcount_t sigcnt; /* number of tasks of the process that are not freed yet */
} CORE;

/* Array, read by user space: the processes in the order of the kernel's task list, oldest first.
 * scan updates the entries of changed processes only. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct process);
} processes SEC(".maps");

/* The state that scan compares to detect an unchanged process. All other fields of a
 * single-threaded process change only when it runs. */
struct seen {
	__u64 start;
	__u64 run; /* CPU time in ns; of a single-threaded process: of its thread */
	__u64 cgroups;
	__u64 task; /* address of the leader */
	__u32 pid;
	__u32 alone; /* number of scans in a row with a single thread, at most SETTLED */
};

/* The number of scans after which a process counts as single-threaded. The CPU time of an exited
 * thread can appear in the sum of the process shortly after the thread has disappeared. */
#define SETTLED 2

/* Prefetch distance in tasks. */
#define AHEAD 8

/* Array: the state of each process at the previous scan, by its index in processes. The loader sets
 * the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seen);
} seen SEC(".maps");

/* Array: the task addresses of the threads of multithreaded processes in the order of the previous
 * scan, for prefetching. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} threads SEC(".maps");

/* Array, read by user space: the indices in processes that the last scan changed, ascending. The
 * loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} changes SEC(".maps");

/* The number of domains of CPUs. on_free divides the CPU time of exited processes into these
 * domains. If 0, the verifier removes that code as dead code. */
const volatile __u32 domains = 0;
#define MAX_DOMAINS 16

/* Array by CPU number: the domain of each CPU, written by user space. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} domain_of SEC(".maps");

/* Arguments and results of scan. */
struct scan_args {
	__u32 all;       /* in: describe unchanged processes, too */
	__u32 processes; /* number of processes, which can exceed the size of the map */
	__u32 same;      /* in: -1; out: number of leading processes that kept their index */
	__u32 changed;   /* number of indices in changes */
	__u64 elapsed;   /* in: ns since the previous run of scan or scan_ran, 0 in the first */
	__u32 slices;    /* number of slices, which can exceed the size of the map */
	__u32 threads;   /* number of threads of multithreaded processes */
};

/* Ring buffer: an exit record (struct ended) for each exited process. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} endings SEC(".maps");

/* The size of endings in bytes, set by the loader. */
const volatile __u32 endings_size = 4096;

/* The number of wakeups while the second half of endings fills. Two CPUs that cross the mark at the
 * same time can both miss it. The reader then gets the next wakeup. */
#define WAKEUPS 32

/* LRU hash: the CPU time in ns of the threads that were freed before their process, by process. If
 * an entry was evicted, on_free uses the kernel's sum, which is slightly too low. Entries of
 * threads that are freed after their process remain until eviction. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct process_key);
	__type(value, __u64);
} freed_threads SEC(".maps");

/* The size of freed_keys, a power of two. */
#define SLOTS 4096

/* Array by the low bits of the PID: an upper bound of the number of keys in freed_threads.
 * Evictions do not lower it. If it is 0, as for most processes, on_free skips the lookup in
 * freed_threads, which costs ten times as much. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} freed_keys SEC(".maps");

/* CPU time in ns by domain. */
struct by_domain {
	__u64 run[MAX_DOMAINS];
};

/* LRU hash: as freed_threads, divided by the last domain of each thread. Only used if domains is
 * set. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct process_key);
	__type(value, struct by_domain);
} freed_by_domain SEC(".maps");

/* The initial value of an entry in freed_by_domain. */
const struct by_domain no_time = {};

/* Counters of losses, read by user space. */
struct {
	__u64 count;      /* number of exit records that did not fit into endings */
	__u64 run;        /* CPU time in ns of these processes */
	__u64 incomplete; /* number of processes whose exit record lacks CPU time of threads */
	__u64 events[EVENTS]; /* of exits without a record, and of threads that ended after their process */
} lost;

/* The time when on_free was attached in ns since boot, written by user space. Threads of older
 * processes may have been freed before. */
__u64 attached = -1;

/* These variables keep the types in the BTF of the object. bpf2go generates Go types from it. */
const struct process *unused_process __attribute__((unused));
const struct ended *unused_ended __attribute__((unused));
const struct scan_args *unused_scan_args __attribute__((unused));

/* Appends an index to changes. */
static __always_inline void note_change(struct scan_args *result, __u32 at)
{
	__u32 next = result->changed;
	__u64 *place = bpf_map_lookup_elem(&changes, &next);

	if (place)
		*place = at;
	result->changed = next + 1;
}

/* Prefetches the task AHEAD places after the index. The kernel links its tasks in a list, so a scan
 * waits for the memory of each task, which is most of its cost. The read overlaps with that wait.
 * The task may have exited: the value is not used, and a read of unmapped memory returns 0. */
static __always_inline void read_ahead(__u32 at)
{
	struct seen *later;

	at += AHEAD;
	later = bpf_map_lookup_elem(&seen, &at);
	if (later)
		(void)*(struct list_head *volatile *)&untrusted((struct task_struct *)later->task)->tasks.next;
}

/* Prefetches the thread AHEAD places later, and records the address of this thread for the next
 * scan. */
static __always_inline void read_thread_ahead(struct scan_args *result, struct task_struct *t)
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

/* Adds the CPU times of the threads of a process to p->run, which contains the time of exited
 * threads. Records slices and events only if the sum changed or the process was not multithreaded
 * before. */
static __always_inline void add_threads(struct scan_args *result, struct seen *s, struct process *p, struct task_struct *first)
{
	struct bpf_iter_task it;
	struct task_struct *t;
	__u64 latest = 0; /* when a thread last started to run */
	__u64 dead = p->run;

	first = bpf_task_acquire(first);
	if (!first) /* the process has exited meanwhile */
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
	if ((slicing || counting) && (s->alone || s->run != p->run)) {
		__u64 before = s->alone ? s->run : 0; /* CPU time of the leader at the previous scan */

		if (counting)
			exited_threads(p, first, dead);
		bpf_iter_task_new(&it, first, PROCESS_THREADS);
		while ((t = bpf_iter_task_next(&it))) {
			if (slicing && !is_released(t))
				add_thread(t, before);
			if (counting)
				add_events(p, t);
			before = 0;
		}
		bpf_iter_task_destroy(&it);
	}
	bpf_task_release(first);
}

/* Updates the maps processes, changes and slices, in one run over all processes (Linux 6.7:
 * open-coded task iterators). All counters are in the result, because the verifier would explore
 * each value of a counter in a local variable. */
SEC("syscall")
int scan(struct scan_args *result)
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
		/* A later task at the same address has another start time, so the PID need not be
		 * read. */
		if (s && s->task == (__u64)t && s->start == start && alone && s->alone == SETTLED && !result->all && s->run == sum &&
		    s->cgroups == (__u64)u->cgroups) {
			result->processes = at + 1;
			continue;
		}
		/* 0 is the idle task. The IDs differ for a moment when another thread calls execve
		 * and becomes the leader. The next scan then lists the process. */
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
			if (counting && (s->run != sum || s->alone < SETTLED)) {
				exited_threads(p, t, p->run);
				add_events(p, t);
			}
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
		result->slices = slice_state.slices;
	if (result->same > result->processes)
		result->same = result->processes;
	return 0;
}

/* Task iterator that user space reads as a stream, for kernels without open-coded iterators (before
 * Linux 6.7). It writes a struct process for each thread, by thread ID. User space adds them up. */
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
		p.pid = t->tgid; /* threads stays 0 */
	p.run = t->se.sum_exec_runtime;
	if (counting) {
		if (p.threads)
			exited_threads(&p, t, p.dead);
		add_events(&p, t);
	}
	if (slicing) {
		__u64 us = grown(t, 0, -1) / 1000;

		p.slice = us > (__u32)-1 ? (__u32)-1 : us;
		p.cpu = cpu_of(t);
	}
	bpf_seq_write(ctx->meta->seq, &p, sizeof(p));
	return 0;
}

/* Returns the domain of the last CPU of a task, 0 by default. */
static __always_inline __u32 domain(struct task_struct *t)
{
	__u32 cpu = cpu_of(t), *of = bpf_map_lookup_elem(&domain_of, &cpu);

	return of ? *of : 0;
}

/* Adds the CPU time of a freed thread to freed_by_domain. */
static __always_inline void free_by_domain(struct task_struct *t, const struct process_key *key, __u64 run)
{
	struct by_domain *by = bpf_map_lookup_elem(&freed_by_domain, key);
	__u32 in = domain(t);

	if (!by) {
		bpf_map_update_elem(&freed_by_domain, key, &no_time, BPF_NOEXIST);
		by = bpf_map_lookup_elem(&freed_by_domain, key);
	}
	if (by && in < MAX_DOMAINS)
		__sync_fetch_and_add(&by->run[in], run);
}

/* Writes the CPU time of a process by domain to its exit record: of the leader t and, if several
 * is set, of the threads that were freed before. Removes the entry of the process in
 * freed_by_domain. */
static __always_inline void end_by_domain(struct task_struct *t, const struct process_key *key, __u32 several, __u64 *parts)
{
	struct by_domain *by = several ? bpf_map_lookup_elem(&freed_by_domain, key) : 0;
	__u32 in = domain(t);

	for (__u32 i = 0; i < domains && i < MAX_DOMAINS; i++)
		parts[i] = (by ? by->run[i] : 0) + (i == in ? t->se.sum_exec_runtime : 0);
	if (by)
		bpf_map_delete_elem(&freed_by_domain, key);
}

/* Returns the element of freed_keys for a process. */
static __always_inline __u32 *keys_like(const struct process_key *key)
{
	__u32 slot = key->pid & (SLOTS - 1);

	return bpf_map_lookup_elem(&freed_keys, &slot);
}

/* Adds the CPU time of a thread that is freed before its process to the maps. */
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
		threads = bpf_map_lookup_elem(&freed_threads, key); /* another CPU added it meanwhile */
	}
	if (threads)
		__sync_fetch_and_add(threads, run);
}

/* Removes the entry of a process in freed_threads and returns its CPU time, 0 without an entry. */
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

/* Reports whether the CPU times of all threads but the leader t are missing: freed_threads evicted
 * them, or the kernel did not call on_free. All these threads were freed, but run, the time of t
 * and of freed threads, is below all, the kernel's sum. */
static __always_inline int is_incomplete(struct task_struct *t, __u64 run, __u64 all)
{
	struct signal_struct___references *signal = (void *)untrusted(t)->signal;

	return run == t->se.sum_exec_runtime && run < all && t->start_boottime > attached &&
	       bpf_core_field_exists(signal->sigcnt.refs.counter) && signal->sigcnt.refs.counter == 1;
}

/* Returns the number of tasks of a process that are not freed yet, this one included. */
static __always_inline int unfreed(struct task_struct *t)
{
	return ((struct signal_struct___references *)untrusted(t)->signal)->sigcnt.refs.counter;
}

/* Adds the events of the exited threads of a process to a sum, and removes them. Threads that are not
 * freed yet may still add events; with the last thread, the entry is removed. */
static __always_inline void take_events(struct task_struct *t, const struct process_key *key, __u64 *sum)
{
	struct events *exited = bpf_map_lookup_elem(&exited_events, key);

	for (int i = 0; exited && i < EVENTS; i++) {
		__u64 n = exited->of[i];

		__sync_fetch_and_add(&exited->of[i], -n);
		__sync_fetch_and_add(&sum[i], n);
	}
	if (exited && unfreed(t) == 1)
		bpf_map_delete_elem(&exited_events, key);
}

/* Moves the events of a thread that is freed to the exited threads of its process, such as the events
 * of a leader that another thread replaced by execve. If the process was freed before, they are
 * lost. */
static __always_inline void free_events(struct task_struct *t, const struct process_key *key)
{
	struct thread *s = bpf_task_storage_get(&thread_runs, t, 0, 0);

	if (s)
		fold(s, key);
	if (unfreed(t) == 1)
		take_events(t, key, lost.events);
}

/* Returns the events of a process that ends. several reports whether threads were freed before the
 * leader t. */
static __always_inline struct events end_events(struct task_struct *t, const struct process_key *key, __u32 several)
{
	struct thread *s = bpf_task_storage_get(&thread_runs, t, 0, 0);
	struct events all = {};

	for (int i = 0; s && i < EVENTS; i++)
		all.of[i] = s->events[i];
	if (several || unfreed(t) > 1)
		take_events(t, key, all.of);
	return all;
}

/* Returns the flags for submitting a record of this size. They wake the reader only while the
 * second half of endings fills. */
static __always_inline __u64 wakeup(__u64 size)
{
	__u64 full = bpf_ringbuf_query(&endings, BPF_RB_AVAIL_DATA);

	if (full < endings_size / 2)
		return BPF_RB_NO_WAKEUP;
	return full % (endings_size / 2 / WAKEUPS) < size ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* Records the exit of a process. Runs when a task is freed, because only then its CPU time is
 * final. At sched_process_exit it is not, and mostly not when the kernel adds it to
 * signal->sum_sched_runtime (kernel/exit.c, __exit_signal). The exact CPU time of a process is
 * therefore the sum over its freed threads. That sum lacks threads that are freed after the leader;
 * in that case the kernel's sum is the closest lower bound. Neither value overcounts. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(on_free, struct task_struct *t)
{
	struct task_struct *u = untrusted(t);
	struct process_key key = {.signal = (__u64)u->signal, .pid = t->tgid};
	__u64 run = t->se.sum_exec_runtime, all = u->signal->sum_sched_runtime;
	__u32 *keys, several, size = sizeof(struct ended) + (domains + (counting ? EVENTS : 0)) * sizeof(__u64);
	struct events events = {};
	struct ended *e;

	if (t->pid != t->tgid) {
		key.start = u->group_leader->start_boottime;
		free_thread(t, &key, run);
		if (counting)
			free_events(t, &key);
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
	if (counting)
		events = end_events(t, &key, several);
	e = bpf_ringbuf_reserve(&endings, size, 0);
	if (!e) {
		for (int i = 0; counting && i < EVENTS; i++)
			__sync_fetch_and_add(&lost.events[i], events.of[i]);
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
	for (int i = 0; counting && i < EVENTS; i++)
		((__u64 *)(e + 1))[domains + i] = events.of[i];
	bpf_ringbuf_submit(e, wakeup(size + BPF_RINGBUF_HDR_SZ));
	return 0;
}
