// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// What the programs about tasks share: how a task is read, and what is told of a process.
//
// Only the fields that are used are declared: their places in the running kernel are found when the
// programs are loaded (BPF CO-RE).
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

/* Since Linux 6.2. */
struct percpu_counter {
	__s64 count;
} CORE;

struct mm_struct {
	struct percpu_counter rss_stat[4];
} CORE;

/* Before. */
struct rss_counter {
	long counter;
};

struct rss_counters {
	struct rss_counter count[4];
};

struct mm_struct___atomic {
	struct rss_counters rss_stat;
} CORE;

/* include/linux/mm_types_task.h; 2 counts what is swapped out. */
#define MM_FILEPAGES 0
#define MM_ANONPAGES 1
#define MM_SHMEMPAGES 3

struct thread_info {
	__u32 cpu;
} CORE;

/* Before Linux 5.16. */
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

/* include/linux/sched.h */
#define PF_KTHREAD 0x00200000
#define EXIT_DEAD 0x10
#define EXIT_ZOMBIE 0x20

#define KERNEL_THREAD 1
#define ZOMBIE 2

/* One process. */
struct process {
	__u64 start;   /* ns since boot */
	__u64 run;     /* ns on a CPU, all threads, those that ended too */
	__u64 cgroup;  /* id in the v2 hierarchy */
	__u64 cgroups; /* another one whenever it moves in any hierarchy, v1 or v2 */
	__u32 pid;
	__u32 parent;
	__u32 threads;
	__u32 flags;
	__u8 comm[16];
	__u64 execs; /* another one whenever it executes a program */
	__u64 dead;  /* stream: ns on a CPU of the threads that ended, which run does not have there */
	__u64 resident; /* pages */
	__u32 cpu; /* the one that it was on last; scans: that its thread was on that began to run last */
	__u32 slice; /* scans: its last slice; stream: what the thread used since the one before, in us; 0: cpu tells where it ran */
	__u32 uid; /* of the real user */
	__u32 unused;
};

/* Whether slices are noted. Where they are not the verifier removes all that is about them. */
const volatile __u32 slicing = 0;

/* What the threads of a process used on one CPU since the scan before. */
struct slice {
	__u64 run;
	__u32 cpu;
	__u32 next; /* slice of the process, 0 if this is the last one */
};

/* What a scan knows of slices, outside of its context so that functions may change it. */
struct {
	__u64 elapsed; /* ns since the last scan */
	__u32 slices;  /* how many there are, which may be more than the array holds */
	__u32 others;  /* how many of them are those of other processes */
} sliced;

/* What each thread had used at the scan before. Scans of all processes and of those that ran share it. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} thread_runs SEC(".maps");

/* The slices of processes with several threads. Slice 0 is not used. Resized before it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slice);
} slices SEC(".maps");

/* The slice that was last begun on each CPU. Resized before it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} slice_on SEC(".maps");

struct bpf_iter_task {
	__u64 opaque[3];
} __attribute__((aligned(8)));

extern int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task, unsigned int flags) __ksym __weak;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) __ksym __weak;
extern void bpf_iter_task_destroy(struct bpf_iter_task *it) __ksym __weak;
extern struct task_struct *bpf_task_acquire(struct task_struct *p) __ksym __weak;
extern void bpf_task_release(struct task_struct *p) __ksym __weak;
extern void bpf_rcu_read_lock(void) __ksym __weak;
extern void bpf_rcu_read_unlock(void) __ksym __weak;
extern void *bpf_rdonly_cast(const void *obj, __u32 type) __ksym __weak;

/* kernel/bpf/task_iter.c */
#define ALL_PROCESSES 0
#define ALL_THREADS 1
#define PROCESS_THREADS 2

/* The same task, whose pointers are to be read through what this returns. Whenever the verifier comes to a read of a pointer
 * through a trusted task, it searches the names of all the kernel's types up to four times (kernel/bpf/verifier.c,
 * btf_nested_type_is_trusted): 1 ms, and nine tenths of the time that loading took. The cast itself is no instruction. */
static __always_inline struct task_struct *untrusted(struct task_struct *t)
{
	if (!bpf_rdonly_cast) /* before Linux 6.2 */
		return t;
	return bpf_rdonly_cast(t, bpf_core_type_id_kernel(struct task_struct));
}

/* A task that is being released: its time is, or is about to be, in signal->sum_sched_runtime as well. It is
 * EXIT_DEAD before that (kernel/exit.c, __exit_signal), so read after the sum this tells whether the sum may
 * have it. Until the sum has it the process shows less than before; never more than it used. */
static __always_inline int is_released(struct task_struct *t)
{
	return (t->exit_state & (EXIT_ZOMBIE | EXIT_DEAD)) == EXIT_DEAD;
}

/* The CPU that a task is on or was on last. */
static __always_inline __u32 cpu_of(struct task_struct *t)
{
	if (bpf_core_field_exists(t->thread_info.cpu))
		return t->thread_info.cpu;
	if (bpf_core_field_exists(((struct task_struct___cpu *)t)->cpu))
		return ((struct task_struct___cpu *)t)->cpu;
	return -1; /* a kernel for one CPU */
}

/* When a task last began to run, by a clock that all CPUs share, unlike exec_start. 0 where the kernel does not keep it
 * (CONFIG_SCHED_INFO). */
static __always_inline __u64 arrival(struct task_struct *t)
{
	return bpf_core_field_exists(t->sched_info.last_arrival) ? t->sched_info.last_arrival : 0;
}

/* What a thread used since the scan before. A thread that no scan noted had used before then, or 0 if that is not known: it used no
 * more than the time that passed. */
static __always_inline __u64 grown(struct task_struct *t, __u64 before, __u64 elapsed)
{
	__u64 run = t->se.sum_exec_runtime, used, *last;

	last = bpf_task_storage_get(&thread_runs, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!last || *last == run)
		return 0;
	if (*last) {
		before = *last;
		elapsed = -1;
	}
	*last = run;
	used = run > before ? run - before : 0;
	return used < elapsed ? used : elapsed;
}

/* Adds what a thread used on a CPU to the slices of its process. The verifier follows it once, and not for each path that leads
 * to it. */
__noinline int add_slice(__u64 run, __u32 cpu)
{
	__u32 *on = bpf_map_lookup_elem(&slice_on, &cpu), at = on ? *on : 0;
	struct slice *slice;

	if (at > sliced.others && at <= sliced.slices) {
		slice = bpf_map_lookup_elem(&slices, &at);
		if (slice && slice->cpu == cpu) { /* else it was begun in an earlier scan */
			slice->run += run;
			return 0;
		}
	}
	at = sliced.slices + 1;
	sliced.slices = at;
	if (on)
		*on = at;
	slice = bpf_map_lookup_elem(&slices, &at);
	if (!slice)
		return 0;
	slice->run = run;
	slice->cpu = cpu;
	slice->next = at - 1 > sliced.others ? at - 1 : 0;
	return 0;
}

/* Adds what a thread used to the slices of its process. */
static __always_inline void add_thread(struct task_struct *t, __u64 before)
{
	__u64 run = grown(t, before, sliced.elapsed);

	if (run)
		add_slice(run, cpu_of(t));
}

/* The last slice of the process whose threads were just added, 0 if it has none. The next process begins. */
static __always_inline __u32 last_slice(void)
{
	__u32 last = sliced.slices > sliced.others ? sliced.slices : 0;

	sliced.others = sliced.slices;
	return last;
}

/* Begins a scan. */
static __always_inline void begin_slices(__u64 elapsed)
{
	sliced.elapsed = elapsed;
	sliced.slices = sliced.others = 0;
}

/* A counter may be below 0 for a moment: each CPU counts for itself first. */
static __always_inline __u64 pages(__s64 count)
{
	return count > 0 ? count : 0;
}

/* The verifier does not follow a pointer into an array of what only a typedef names, atomic_long_t. */
static __always_inline __u64 resident_before_6_2(struct mm_struct *mm)
{
	struct mm_struct___atomic *old = (struct mm_struct___atomic *)mm;
	long file = 0, anon = 0, shmem = 0;

	bpf_core_read(&file, sizeof(file), &old->rss_stat.count[MM_FILEPAGES].counter);
	bpf_core_read(&anon, sizeof(anon), &old->rss_stat.count[MM_ANONPAGES].counter);
	bpf_core_read(&shmem, sizeof(shmem), &old->rss_stat.count[MM_SHMEMPAGES].counter);
	return pages(file) + pages(anon) + pages(shmem);
}

/* What a task has in memory, about: the same counters as in /proc/<pid>/stat. */
static __always_inline __u64 resident(struct task_struct *t)
{
	struct mm_struct *mm = t->mm;

	if (!mm || t->flags & PF_KTHREAD) /* which may have borrowed another's */
		return 0;
	if (bpf_core_field_exists(mm->rss_stat[0].count))
		return pages(mm->rss_stat[MM_FILEPAGES].count) + pages(mm->rss_stat[MM_ANONPAGES].count) +
		       pages(mm->rss_stat[MM_SHMEMPAGES].count);
	return resident_before_6_2(mm);
}

/* The number of the real user, in the first user namespace. */
static __always_inline __u32 user_of(struct task_struct *u)
{
	return u->real_cred->uid.val;
}

/* All but the times. */
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
	/* A first thread that ended is a zombie too while others go on. */
	p->flags = (t->flags & PF_KTHREAD ? KERNEL_THREAD : 0) |
		   (t->exit_state & EXIT_ZOMBIE && threads <= 1 ? ZOMBIE : 0);
	__builtin_memcpy(p->comm, t->comm, sizeof(p->comm));
}
