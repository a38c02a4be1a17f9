// SPDX-License-Identifier: Apache-2.0

// A floor in C: it does at least what any program must do, over and over. Arguments: wake, procfs or pread, and the
// nanoseconds between two expirations of a kernel timer.
//
//   wake    does nothing else
//   procfs  opens, reads and closes each /proc/PID/stat
//   pread   reads each /proc/PID/stat from a file that stays open
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define PIDS (1 << 22) /* PID_MAX_LIMIT (include/linux/threads.h) */

static int kept[PIDS]; /* open files by process number, 0 for none */
static char text[4096];

static int open_stat(int proc, int pid)
{
	char name[32];

	snprintf(name, sizeof name, "%d/stat", pid);
	return openat(proc, name, O_RDONLY | O_CLOEXEC);
}

static void read_once(int proc, int pid)
{
	int fd = open_stat(proc, pid);

	if (fd < 0)
		return; /* it has ended */
	if (read(fd, text, sizeof text) < 0) {
		/* it has ended since */
	}
	close(fd);
}

static void read_kept(int proc, int pid)
{
	int fd = kept[pid];

	if (fd > 0 && pread(fd, text, sizeof text, 0) > 0)
		return;
	if (fd > 0)
		close(fd); /* of a process that has ended */
	fd = open_stat(proc, pid);
	kept[pid] = fd > 0 && pread(fd, text, sizeof text, 0) > 0 ? fd : 0;
	if (fd > 0 && !kept[pid])
		close(fd);
}

static void each(DIR *proc, void (*f)(int, int))
{
	struct dirent *entry;

	rewinddir(proc);
	while ((entry = readdir(proc)))
		if (isdigit((unsigned char)entry->d_name[0]))
			f(dirfd(proc), atoi(entry->d_name) % PIDS);
}

int main(int argc, char **argv)
{
	struct rlimit files = {1 << 20, 1 << 20};
	struct itimerspec every = {0};
	void (*f)(int, int) = NULL;
	uint64_t expirations;
	long long ns;
	DIR *proc;
	int timer;

	if (argc != 3)
		return 2;
	if (!strcmp(argv[1], "procfs"))
		f = read_once;
	else if (!strcmp(argv[1], "pread"))
		f = read_kept;
	else if (strcmp(argv[1], "wake"))
		return 2;
	setrlimit(RLIMIT_NOFILE, &files); /* without it, files beyond the limit are opened for each read */
	ns = atoll(argv[2]);
	every.it_interval.tv_sec = every.it_value.tv_sec = ns / 1000000000;
	every.it_interval.tv_nsec = every.it_value.tv_nsec = ns % 1000000000;
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	proc = opendir("/proc");
	if (timer < 0 || !proc || timerfd_settime(timer, 0, &every, NULL))
		return 1;
	while (read(timer, &expirations, sizeof expirations) == sizeof expirations)
		if (f)
			each(proc, f);
	return 1;
}
