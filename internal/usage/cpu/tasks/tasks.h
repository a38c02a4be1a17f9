// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Declarations of kernel types, the description of a process, and the recording of slices.
// tasks.bpf.c and ran.bpf.c share them.
//
// The kernel types declare only the fields that the programs read. The loader resolves their
// offsets in the running kernel (BPF CO-RE).
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define CORE __attribute__((preserve_access_index))

struct sched_entity {
	__u64 sum_exec_runtime;
} CORE;

struct sched_info {
	unsigned long long last_arrival;
} CORE;

struct signal_struct {
	unsigned long long sum_sched_runtime;
	int nr_threads;
} CORE;

struct kernfs_node {
	__u64 id;
} CORE;

struct cgroup {
	struct kernfs_node *kn;
} CORE;

struct css_set {
	struct cgroup *dfl_cgrp;
} CORE;

struct list_head {
	struct list_head *next, *prev;
} CORE;

/* The type of the counters in mm_struct.rss_stat since Linux 6.2. */
struct percpu_counter {
	__s64 count;
} CORE;

struct mm_struct {
	struct percpu_counter rss_stat[4];
} CORE;

/* The types of mm_struct.rss_stat before Linux 6.2. */
struct rss_counter {
	long counter;
};

struct rss_counters {
	struct rss_counter count[4];
};

struct mm_struct___atomic {
	struct rss_counters rss_stat;
} CORE;

/* Indices in rss_stat (include/linux/mm_types_task.h). The counter at 2, MM_SWAPENTS, counts
 * swapped pages. */
#define MM_FILEPAGES 0
#define MM_ANONPAGES 1
#define MM_SHMEMPAGES 3

struct thread_info {
	__u32 cpu;
} CORE;

/* task_struct before Linux 5.16. */
struct task_struct___cpu {
	unsigned int cpu;
} CORE;

typedef struct {
	__u32 val;
} kuid_t;

struct cred {
	kuid_t uid;
} CORE;

struct task_struct {
	struct thread_info thread_info;
	struct mm_struct *mm;
	unsigned int flags;
	int on_rq;
	int exit_state;
	int pid;
	int tgid;
	__u64 start_boottime;
	__u64 self_exec_id;
	struct list_head tasks;
	struct list_head thread_node;
	char comm[16];
	struct sched_entity se;
	struct sched_info sched_info;
	struct signal_struct *signal;
	struct css_set *cgroups;
	struct task_struct *real_parent;
	const struct cred *real_cred;
	struct task_struct *group_leader;
} CORE;

/* Bits of task_struct.flags and exit_state (include/linux/sched.h). */
#define PF_KTHREAD 0x00200000
#define EXIT_DEAD 0x10
#define EXIT_ZOMBIE 0x20

/* Bits of process.flags. */
#define KERNEL_THREAD 1
#define ZOMBIE 2

/* The number of hardware events: cycles, instructions and cache misses. */
#define EVENTS 3

/* Description of a process. The program stream writes one for each thread. */
struct process {
	__u64 start;   /* ns since boot */
	__u64 run;     /* CPU time in ns of all threads, exited ones included; stream: of this thread */
	__u64 cgroup;  /* cgroup ID in the v2 hierarchy */
	__u64 cgroups; /* changes whenever the process moves in any hierarchy, v1 or v2 */
	__u32 pid;
	__u32 parent;  /* PID of the parent */
	__u32 threads; /* number of threads; stream: 0 for threads other than the leader */
	__u32 flags;
	__u8 comm[16];
	__u64 execs;    /* changes with each execve */
	__u64 dead;     /* stream: CPU time in ns of the exited threads of the process */
	__u64 resident; /* resident memory in pages */
	__u32 cpu;      /* last CPU of the thread that started to run last; stream: of this thread */
	__u32 slice;    /* scans: last slice of the process, 0 if all CPU time counts on cpu;
			 * stream: CPU time of this thread in us since the previous read */
	__u32 uid;      /* real user ID */
	__u32 unused;
	__u64 events[EVENTS]; /* of all threads, exited ones included; stream: of this thread */
};

/* Enables the recording of slices. If 0, the verifier removes that code as dead code. */
const volatile __u32 slicing = 0;

/* The number of hardware events that are counted, the first two or all. If 0, the verifier removes
 * that code as dead code. */
const volatile __u32 counting = 0;

/* CPU time of the threads of a process since the previous scan, of threads with the same last
 * CPU. */
struct slice {
	__u64 run; /* ns */
	__u32 cpu;
	__u32 next; /* next slice of the process, always a lower index; 0 ends the list */
};

/* Slice state of the running scan. It is not part of the context, so that the global function
 * add_slice can change it. */
struct {
	__u64 elapsed; /* ns since the previous scan */
	__u32 slices;  /* number of slices, which can exceed the size of the map */
	__u32 others;  /* number of slices of the processes before the current one */
} slice_state;

/* State of a thread. */
struct thread {
	__u64 run;            /* CPU time in ns at the previous scan */
	__u64 events[EVENTS]; /* counted since the state was created, without the events in exited_events */
};

/* Task storage: the state of each thread. All programs share the map. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} thread_runs SEC(".maps");

/* Identifies a process. The address of its signal_struct does not suffice, because the kernel
 * reuses that memory. */
struct process_key {
	__u64 signal;
	__u64 pid;
	__u64 start;
};

struct events {
	__u64 of[EVENTS];
};

/* LRU hash: the events of exited threads by process, only used if counting is set. All programs
 * share the map. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct process_key);
	__type(value, struct events);
} exited_events SEC(".maps");

/* Array, read by user space: the slices of multithreaded processes since the previous scan. Slice 0
 * is not used. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slice);
} slices SEC(".maps");

/* Array by CPU number: the index of the slice that was added last for this CPU. The loader sets the
 * size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} slice_on SEC(".maps");

struct bpf_iter_task {
	__u64 opaque[3];
} __attribute__((aligned(8)));

struct bpf_iter_meta {
	struct seq_file *seq;
} CORE;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} CORE;

extern int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task, unsigned int flags) __ksym __weak;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) __ksym __weak;
extern void bpf_iter_task_destroy(struct bpf_iter_task *it) __ksym __weak;
extern struct task_struct *bpf_task_acquire(struct task_struct *p) __ksym __weak;
extern void bpf_task_release(struct task_struct *p) __ksym __weak;
extern void bpf_rcu_read_lock(void) __ksym __weak;
extern void bpf_rcu_read_unlock(void) __ksym __weak;
extern void *bpf_rdonly_cast(const void *obj, __u32 type) __ksym __weak;

/* Flags of bpf_iter_task_new (kernel/bpf/task_iter.c). */
#define ALL_PROCESSES 0
#define ALL_THREADS 1
#define PROCESS_THREADS 2

/* Returns a task as an untrusted pointer, through which the pointers of the task are read cheaply.
 * For each read of a pointer through a trusted task, the verifier searches the names of all kernel
 * types up to four times (kernel/bpf/verifier.c, btf_nested_type_is_trusted). Each read takes 1 ms,
 * and these reads were nine tenths of the load time. The verifier replaces the cast by a move. */
static __always_inline struct task_struct *untrusted(struct task_struct *t)
{
	if (!bpf_rdonly_cast) /* before Linux 6.2 */
		return t;
	return bpf_rdonly_cast(t, bpf_core_type_id_kernel(struct task_struct));
}

/* Reports whether a task is being released: signal->sum_sched_runtime includes its CPU time, or
 * will soon. The task is EXIT_DEAD before the kernel adds its time (kernel/exit.c, __exit_signal).
 * Callers read the sum first and this state afterwards, so no time counts twice. Until the kernel
 * adds the time, the process shows less CPU time than before, and never more than it used. */
static __always_inline int is_released(struct task_struct *t)
{
	return (t->exit_state & (EXIT_ZOMBIE | EXIT_DEAD)) == EXIT_DEAD;
}

/* Returns the current or last CPU of a task. */
static __always_inline __u32 cpu_of(struct task_struct *t)
{
	if (bpf_core_field_exists(t->thread_info.cpu))
		return t->thread_info.cpu;
	if (bpf_core_field_exists(((struct task_struct___cpu *)t)->cpu))
		return ((struct task_struct___cpu *)t)->cpu;
	return -1; /* a kernel without SMP */
}

/* Returns when a task last started to run, 0 on kernels without CONFIG_SCHED_INFO. All CPUs share
 * its clock, unlike the clock of exec_start. */
static __always_inline __u64 arrival(struct task_struct *t)
{
	return bpf_core_field_exists(t->sched_info.last_arrival) ? t->sched_info.last_arrival : 0;
}

/* Returns the CPU time in ns of a thread since the previous scan, and records its present CPU time.
 * For a thread without a recorded time, before is its CPU time at the previous scan, 0 if
 * unavailable. The result is then at most elapsed, the time since the previous scan. */
static __always_inline __u64 grown(struct task_struct *t, __u64 before, __u64 elapsed)
{
	__u64 run = t->se.sum_exec_runtime, used;
	struct thread *last;

	last = bpf_task_storage_get(&thread_runs, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!last || last->run == run)
		return 0;
	if (last->run) {
		before = last->run;
		elapsed = -1;
	}
	last->run = run;
	used = run > before ? run - before : 0;
	return used < elapsed ? used : elapsed;
}

/* Adds CPU time of a thread to the slice of its CPU in the current process. It is a global
 * function, so that the verifier checks it once and not on each path to a call. */
__noinline int add_slice(__u64 run, __u32 cpu)
{
	__u32 *on = bpf_map_lookup_elem(&slice_on, &cpu), at = on ? *on : 0;
	struct slice *slice;

	if (at > slice_state.others && at <= slice_state.slices) {
		slice = bpf_map_lookup_elem(&slices, &at);
		if (slice && slice->cpu == cpu) { /* else from an earlier scan */
			slice->run += run;
			return 0;
		}
	}
	at = slice_state.slices + 1;
	slice_state.slices = at;
	if (on)
		*on = at;
	slice = bpf_map_lookup_elem(&slices, &at);
	if (!slice)
		return 0;
	slice->run = run;
	slice->cpu = cpu;
	slice->next = at - 1 > slice_state.others ? at - 1 : 0;
	return 0;
}

/* Adds the CPU time of a thread since the previous scan to the slices of the current process. */
static __always_inline void add_thread(struct task_struct *t, __u64 before)
{
	__u64 run = grown(t, before, slice_state.elapsed);

	if (run)
		add_slice(run, cpu_of(t));
}

/* Returns the last slice of the current process, 0 if there are no slices, and starts the next
 * process. */
static __always_inline __u32 last_slice(void)
{
	__u32 last = slice_state.slices > slice_state.others ? slice_state.slices : 0;

	slice_state.others = slice_state.slices;
	return last;
}

/* Starts a scan, elapsed ns after the previous one. */
static __always_inline void begin_slices(__u64 elapsed)
{
	slice_state.elapsed = elapsed;
	slice_state.slices = slice_state.others = 0;
}

/* Returns a counter as a number of pages. A counter can be negative for a moment, because each CPU
 * batches its changes. */
static __always_inline __u64 pages(__s64 count)
{
	return count > 0 ? count : 0;
}

/* Returns the resident memory in pages before Linux 6.2. The counters are copied, because the
 * verifier rejects direct reads: their type, atomic_long_t, is a typedef of an unnamed struct. */
static __always_inline __u64 resident_before_6_2(struct mm_struct *mm)
{
	struct mm_struct___atomic *old = (struct mm_struct___atomic *)mm;
	long file = 0, anon = 0, shmem = 0;

	bpf_core_read(&file, sizeof(file), &old->rss_stat.count[MM_FILEPAGES].counter);
	bpf_core_read(&anon, sizeof(anon), &old->rss_stat.count[MM_ANONPAGES].counter);
	bpf_core_read(&shmem, sizeof(shmem), &old->rss_stat.count[MM_SHMEMPAGES].counter);
	return pages(file) + pages(anon) + pages(shmem);
}

/* Returns the approximate resident memory in pages, from the counters that /proc/<pid>/stat
 * reports. */
static __always_inline __u64 resident(struct task_struct *t)
{
	struct mm_struct *mm = t->mm;

	if (!mm || t->flags & PF_KTHREAD) /* which can borrow an mm_struct */
		return 0;
	if (bpf_core_field_exists(mm->rss_stat[0].count))
		return pages(mm->rss_stat[MM_FILEPAGES].count) + pages(mm->rss_stat[MM_ANONPAGES].count) +
		       pages(mm->rss_stat[MM_SHMEMPAGES].count);
	return resident_before_6_2(mm);
}

/* Returns the real user ID in the initial user namespace. */
static __always_inline __u32 user_of(struct task_struct *u)
{
	return u->real_cred->uid.val;
}

/* Sets all fields of p but the CPU times, from the leader of the process. */
static __always_inline void describe(struct process *p, struct task_struct *t)
{
	struct task_struct *u = untrusted(t);
	__u32 threads = u->signal->nr_threads;

	p->start = t->start_boottime;
	p->cgroups = (__u64)u->cgroups;
	p->cgroup = u->cgroups->dfl_cgrp->kn->id;
	p->pid = t->tgid;
	p->parent = u->real_parent->tgid;
	p->execs = t->self_exec_id;
	p->threads = threads;
	p->resident = resident(u);
	p->cpu = cpu_of(t);
	p->uid = user_of(u);
	/* An exited leader is a zombie while other threads run, too. The process is not. */
	p->flags = (t->flags & PF_KTHREAD ? KERNEL_THREAD : 0) |
		   (t->exit_state & EXIT_ZOMBIE && threads <= 1 ? ZOMBIE : 0);
	__builtin_memcpy(p->comm, t->comm, sizeof(p->comm));
}

/* Moves the events of a thread to the exited threads of its process. A scan reads the exited threads
 * first, so no event counts twice. */
static __always_inline void fold(struct thread *s, const struct process_key *key)
{
	struct events moved, *to;

	__builtin_memcpy(&moved, s->events, sizeof(moved));
	if (!moved.of[0] && !moved.of[1] && !moved.of[2])
		return;
	__builtin_memset(s->events, 0, sizeof(s->events));
	if (!bpf_map_update_elem(&exited_events, key, &moved, BPF_NOEXIST))
		return;
	to = bpf_map_lookup_elem(&exited_events, key);
	for (int i = 0; to && i < EVENTS; i++)
		__sync_fetch_and_add(&to->of[i], moved.of[i]);
}

/* Sets the events of a process to the events of its exited threads. dead is the CPU time of these
 * threads. t is the leader. */
static __always_inline void exited_threads(struct process *p, struct task_struct *t, __u64 dead)
{
	struct task_struct *u = untrusted(t);
	struct process_key key = {.signal = (__u64)u->signal, .pid = t->tgid, .start = t->start_boottime};
	struct events *exited = dead ? bpf_map_lookup_elem(&exited_events, &key) : 0;

	for (int i = 0; i < EVENTS; i++)
		p->events[i] = exited ? exited->of[i] : 0;
}

/* Adds the events of a thread to its process. */
static __always_inline void add_events(struct process *p, struct task_struct *t)
{
	struct thread *s = bpf_task_storage_get(&thread_runs, t, 0, 0);

	for (int i = 0; s && i < EVENTS; i++)
		p->events[i] += s->events[i];
}
