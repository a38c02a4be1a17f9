//go:build ignore

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// BPF programs that list the processes that ran, and count events. A hook marks the processes of both
// threads at each context switch, in a bitmap by PID. It also adds the hardware events of the CPU
// since its previous switch to the thread that leaves it. Another program takes the marks and
// describes each marked process.
#include "tasks.h"

typedef _Bool bool;

#define PIDS (1 << 22) /* PID_MAX_LIMIT (include/linux/threads.h) */

/* Bitmap of the marked processes by PID, bitmap of its words that can have marks, and bitmap of the
 * words of summary that can have bits. */
__u64 marks[PIDS / 64];
__u64 summary[PIDS / 4096];
__u64 top[PIDS / 262144];

/* The number of marks. It has a cache line of its own, because on_switch writes to it. */
__u64 marked __attribute__((aligned(64)));

/* Arguments and results of scan_ran. */
struct visit_args {
	__u32 most;    /* in: if more processes are marked, take the marks and describe no process */
	__u32 marked;  /* approximate number of marked processes */
	__u32 found;   /* number of described processes, which can exceed the size of the map */
	__u64 elapsed; /* in: ns since the previous run of scan or scan_ran, 0 in the first */
	__u32 slices;  /* number of slices, which can exceed the size of the map */
};

/* State of the running scan_ran. It is not part of the context, so that global functions can change
 * it. */
struct visit_args visit_state;

/* Array, read by user space: the processes that ran. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct process);
} ran_processes SEC(".maps");

struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym __weak;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym __weak;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym __weak;
extern struct task_struct *bpf_task_from_pid(int pid) __ksym __weak;

/* Marks a process. The mark of a marked process is not written again. */
static __always_inline void mark(__u32 tgid)
{
	__u64 bit = 1ull << (tgid & 63);
	__u64 *word = &marks[(tgid >> 6) & (PIDS / 64 - 1)];

	if (!tgid || *(volatile __u64 *)word & bit) /* 0 is the idle task */
		return;
	if (__sync_fetch_and_or(word, bit) & bit)
		return;
	__sync_fetch_and_or(&summary[(tgid >> 12) & (PIDS / 4096 - 1)], 1ull << ((tgid >> 6) & 63));
	__sync_fetch_and_or(&top[(tgid >> 18) & (PIDS / 262144 - 1)], 1ull << ((tgid >> 12) & 63));
	__sync_fetch_and_add(&marked, 1);
}

/* Enables marks. If 0, the verifier removes that code as dead code. */
const volatile __u32 marking = 1;

/* Perf event arrays: the counter of each CPU, for each event. The library limits such an array to one
 * counter for each CPU. */
#define COUNTERS(name) struct { \
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); \
	__type(key, __u32); \
	__type(value, __u32); \
} name SEC(".maps")

COUNTERS(cycles);
COUNTERS(instructions);
COUNTERS(misses);

/* The events of a CPU, on two cache lines. Sums are since the hook was attached, and only of the
 * time that was counted. */
struct cpu_counts {
	__u64 last[EVENTS];     /* values of the counters */
	__u64 all[EVENTS];      /* sums */
	__u64 idle[EVENTS];     /* of the idle task */
	__u64 lost[EVENTS];     /* of threads without state */
	__u64 enabled, running; /* times of the counters in ns; if others used the PMU, running is less */
	__u64 switches;
	__u32 period;           /* the counting period of last */
	__u32 process;          /* PID of the running process, 0 while idle */
} __attribute__((aligned(64)));

/* Array by CPU number, read by user space. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_counts);
} cpu_events SEC(".maps");

/* The number of the counting period, 0 while events are not counted. User space changes it when it
 * continues to count, and when the counters of a CPU are other ones: in each period, a CPU counts
 * from its first switch on. */
__u32 period __attribute__((aligned(64)));

/* These variables keep the types in the BTF of the object. bpf2go generates Go types from it. */
const struct cpu_counts *unused_cpu_counts __attribute__((unused));

/* Reads the counter of this CPU and returns its growth, or 0 if the value fell: user space has opened
 * another counter. The helper returns an error as a high value. */
static __always_inline __u64 read_counter(void *counters, __u64 *last)
{
	__u64 now = bpf_perf_event_read(counters, BPF_F_CURRENT_CPU), grown = now - *last;

	if (now > -4096ull)
		return 0;
	if (now < *last)
		grown = 0;
	*last = now;
	return grown;
}

/* Adds the events of this CPU since the last call to the thread t, which ran since then. next is the
 * PID of the process that runs from now on. */
static __always_inline void count(struct task_struct *t, __u32 next)
{
	__u32 cpu = bpf_get_smp_processor_id(), now = *(volatile __u32 *)&period;
	struct cpu_counts *c = bpf_map_lookup_elem(&cpu_events, &cpu);
	__u64 grown[EVENTS] = {}, *to;
	struct thread *s;

	if (!c)
		return;
	c->process = next;
	if (!now)
		return;
	grown[0] = read_counter(&cycles, &c->last[0]);
	grown[1] = read_counter(&instructions, &c->last[1]);
	if (counting == EVENTS)
		grown[2] = read_counter(&misses, &c->last[2]);
	c->switches++;
	if (c->period != now) {
		c->period = now;
		return;
	}
	to = c->idle;
	if (t->pid) {
		s = bpf_task_storage_get(&thread_runs, t, 0, 0);
		to = s ? s->events : c->lost;
	}
	for (int i = 0; i < EVENTS; i++) {
		c->all[i] += grown[i];
		to[i] += grown[i];
	}
}

/* Moves the events of an exited thread to its process, at its last switch: later, the process may be
 * freed already. A leader keeps its events unless its process has other threads: these may replace
 * the leader by execve. */
static __always_inline void leave(struct task_struct *t)
{
	struct task_struct *u = untrusted(t);
	struct process_key key = {.signal = (__u64)u->signal, .pid = t->tgid};
	struct thread *s;

	if (t->pid == t->tgid && u->signal->nr_threads <= 1)
		return;
	key.start = u->group_leader->start_boottime;
	s = bpf_task_storage_get(&thread_runs, t, 0, 0);
	if (s)
		fold(s, &key);
}

/* Counts events, and marks the processes of the thread that leaves a CPU and of the thread that gets
 * it. The kernel has updated the CPU time of prev. Both are marked because the hook is not called at
 * every switch. */
SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	if (counting) {
		count(prev, next->tgid);
		if (prev->exit_state)
			leave(prev);
	}
	if (marking) {
		mark(prev->tgid);
		mark(next->tgid);
	}
	return 0;
}

/* Counts the events of the thread that runs on this CPU until now, and reads the times of the
 * counters. User space runs the program on busy CPUs. */
SEC("raw_tp/sched_switch")
int flush(void *unused)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct bpf_perf_event_value v = {};
	__u32 cpu = bpf_get_smp_processor_id();
	struct cpu_counts *c = bpf_map_lookup_elem(&cpu_events, &cpu);

	count(t, t->tgid);
	if (!c)
		return 0;
	c->enabled = c->running = 0;
#define ADD_TIMES(counters) \
	if (!bpf_perf_event_read_value(&counters, BPF_F_CURRENT_CPU, &v, sizeof(v))) { \
		c->enabled += v.enabled; \
		c->running += v.running; \
	}
	ADD_TIMES(cycles)
	ADD_TIMES(instructions)
	if (counting == EVENTS)
		ADD_TIMES(misses)
	return 0;
}

/* Creates the state of a new thread. A switch cannot create it: the kernel holds the lock of the run
 * queue there. */
SEC("tp_btf/task_newtask")
int BPF_PROG(on_new, struct task_struct *t, __u64 flags)
{
	bpf_task_storage_get(&thread_runs, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	return 0;
}

/* Creates the state of all threads. User space runs it after on_new is attached. */
SEC("iter/task")
int create(struct bpf_iter__task *ctx)
{
	if (ctx->task)
		bpf_task_storage_get(&thread_runs, ctx->task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	return 0;
}

/* Marks the processes that are on a CPU or wait for a CPU. User space runs the program after
 * on_switch is attached, and after scan_ran took marks without describing the processes. A process
 * that stays on its CPU has no switches. */
SEC("syscall")
int mark_running(void *unused)
{
	struct bpf_iter_task it;
	struct task_struct *t;

	bpf_rcu_read_lock();
	bpf_iter_task_new(&it, 0, ALL_THREADS);
	while ((t = bpf_iter_task_next(&it)))
		if (t->on_rq)
			mark(t->tgid);
	bpf_iter_task_destroy(&it);
	bpf_rcu_read_unlock();
	return 0;
}

/* Describes a marked process. A running process is marked again for the next scan_ran, because it
 * can stay on its CPU without a switch. */
__noinline int visit(__u32 pid)
{
	struct task_struct *t, *u, *thread;
	struct bpf_iter_task it;
	struct process *p;
	__u64 run, latest;
	__u32 at, running;

	t = bpf_task_from_pid(pid);
	if (!t)
		return 0;
	at = visit_state.found;
	if ((__u32)t->pid != (__u32)t->tgid || is_released(t)) {
		bpf_task_release(t);
		return 0;
	}
	visit_state.found = at + 1;
	p = bpf_map_lookup_elem(&ran_processes, &at);
	if (!p) {
		bpf_task_release(t);
		return 0;
	}
	u = untrusted(t);
	run = *(volatile unsigned long long *)&u->signal->sum_sched_runtime; /* before its threads */
	describe(p, t);
	running = t->on_rq;
	if (counting)
		exited_threads(p, t, run);
	if (u->thread_node.next == u->thread_node.prev) {
		if (counting)
			add_events(p, t);
		if (!is_released(t))
			run += t->se.sum_exec_runtime;
	} else {
		latest = 0;
		bpf_rcu_read_lock();
		bpf_iter_task_new(&it, t, PROCESS_THREADS);
		while ((thread = bpf_iter_task_next(&it))) {
			__u64 arrived = arrival(thread);

			if (!is_released(thread)) {
				run += thread->se.sum_exec_runtime;
				if (slicing)
					add_thread(thread, 0);
			}
			if (counting)
				add_events(p, thread);
			running |= thread->on_rq;
			if (arrived > latest) {
				latest = arrived;
				p->cpu = cpu_of(thread);
			}
		}
		bpf_iter_task_destroy(&it);
		bpf_rcu_read_unlock();
	}
	p->run = run;
	if (slicing)
		p->slice = last_slice();
	bpf_task_release(t);
	if (running)
		mark(pid);
	return 0;
}

/* Returns the index of the lowest bit that is set. */
static __always_inline __u32 lowest(__u64 v)
{
	__u32 n = 0;

	if (!(__u32)v) { v >>= 32; n += 32; }
	if (!(v & 0xffff)) { v >>= 16; n += 16; }
	if (!(v & 0xff)) { v >>= 8; n += 8; }
	if (!(v & 0xf)) { v >>= 4; n += 4; }
	if (!(v & 3)) { v >>= 2; n += 2; }
	return n + !(v & 1);
}

/* Takes a word of marks and visits its processes. */
__noinline int take(__u32 at)
{
	__u64 word = __sync_lock_test_and_set(&marks[at & (PIDS / 64 - 1)], 0);
	struct bpf_iter_num it;

	if (visit_state.marked > visit_state.most)
		return 0;
	bpf_iter_num_new(&it, 0, 64);
	while (bpf_iter_num_next(&it)) {
		__u32 bit;

		if (!word)
			break;
		bit = lowest(word);
		word &= word - 1;
		visit((at << 6) + bit);
	}
	bpf_iter_num_destroy(&it);
	return 0;
}

/* Takes a word of summary and the words of marks that it refers to. */
__noinline int take_words(__u32 at)
{
	__u64 word = __sync_lock_test_and_set(&summary[at & (PIDS / 4096 - 1)], 0);
	struct bpf_iter_num it;

	bpf_iter_num_new(&it, 0, 64);
	while (bpf_iter_num_next(&it)) {
		__u32 bit;

		if (!word)
			break;
		bit = lowest(word);
		word &= word - 1;
		take((at << 6) + bit);
	}
	bpf_iter_num_destroy(&it);
	return 0;
}

/* Takes the marks, and describes the marked processes in ran_processes (Linux 6.7: open-coded task
 * iterators). The marks are removed even if there are too many. */
SEC("syscall")
int scan_ran(struct visit_args *r)
{
	struct bpf_iter_num it, inner;
	int *i;

	visit_state.most = r->most;
	visit_state.marked = __sync_lock_test_and_set(&marked, 0);
	visit_state.found = 0;
	if (slicing)
		begin_slices(r->elapsed);
	bpf_iter_num_new(&it, 0, PIDS / 262144);
	while ((i = bpf_iter_num_next(&it))) {
		__u32 at = *i & (PIDS / 262144 - 1);
		__u64 word = top[at];

		if (!word)
			continue;
		word = __sync_lock_test_and_set(&top[at], 0);
		bpf_iter_num_new(&inner, 0, 64);
		while (bpf_iter_num_next(&inner)) {
			__u32 bit;

			if (!word)
				break;
			bit = lowest(word);
			word &= word - 1;
			take_words((at << 6) + bit);
		}
		bpf_iter_num_destroy(&inner);
	}
	bpf_iter_num_destroy(&it);
	r->marked = visit_state.marked;
	r->found = visit_state.found;
	if (slicing)
		r->slices = slice_state.slices;
	return 0;
}
