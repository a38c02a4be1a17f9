// SPDX-License-Identifier: Apache-2.0

// Hold holds a lock of its own process, or of a directory, while it runs. Any user who may mount FUSE
// can do that. The lock is taken by a system call that waits for a FUSE server that never answers.
// Readers of the files of /proc/PID that take the same lock wait with it.
//
//	hold mmap DEVICE DIRECTORY    holds the mmap lock (cmdline, environ, maps): mmap(2) of a file
//	                              whose dirty page is never written back
//	hold epoll DEVICE DIRECTORY   holds the lock of an epoll descriptor (its fdinfo): epoll_wait(2)
//	                              copies to a page that is never read
//	hold proc DEVICE DIRECTORY    holds the lock of its directory /proc/PID (names that are not
//	                              cached): getdents64(2) copies to such a page
//	hold /PATH DEVICE DIRECTORY   holds the lock of another directory
//
// DEVICE is a node of /dev/fuse that the user may open, and DIRECTORY an empty directory to mount on.
// The process is the server, and its child holds the lock. The process prints the PID of the child
// after the first request that the server does not answer. The child ends with the server.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { page = 4096 };

static void fail(const char *what) {
	perror(what);
	exit(1);
}

static void put(const char *file, const char *text) {
	int fd = open(file, O_WRONLY);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		fail(file);
	close(fd);
}

// serve answers requests for a file of one page until the connection ends, except for requests with
// the given operation.
static void serve(int fd, uint32_t unanswered, pid_t holder) {
	static char request[1 << 17], answer[2 * page];
	int opened = 0;
	for (;;) {
		ssize_t n = read(fd, request, sizeof request);
		if (n < 0) {
			if (errno == EINTR || errno == EAGAIN || errno == ENOENT)
				continue;
			return; // unmounted
		}
		struct fuse_in_header *in = (void *)request;
		struct fuse_out_header *out = (void *)answer;
		void *body = out + 1;
		struct fuse_attr attr = {.ino = 2, .size = page, .blocks = 8, .mode = S_IFREG | 0666, .nlink = 1};
		size_t length = 0;

		memset(answer, 0, sizeof answer);
		out->unique = in->unique;
		if (in->opcode == unanswered) {
			printf("%d\n", holder);
			fflush(stdout);
			continue;
		}
		switch (in->opcode) {
		case FUSE_INIT: {
			struct fuse_init_in *asked = (void *)(in + 1);
			struct fuse_init_out *o = body;
			o->major = FUSE_KERNEL_VERSION;
			o->minor = asked->minor < 31 ? asked->minor : 31;
			o->max_write = 1 << 16;
			length = sizeof *o;
			break;
		}
		case FUSE_LOOKUP: {
			struct fuse_entry_out *o = body;
			o->nodeid = 2;
			o->attr = attr;
			o->entry_valid = o->attr_valid = 1000;
			length = sizeof *o;
			break;
		}
		case FUSE_GETATTR:
		case FUSE_SETATTR: {
			struct fuse_attr_out *o = body;
			if (in->nodeid == FUSE_ROOT_ID) {
				attr.ino = 1;
				attr.mode = S_IFDIR | 0777;
			}
			o->attr = attr;
			o->attr_valid = 1000;
			length = sizeof *o;
			break;
		}
		case FUSE_OPEN: {
			struct fuse_open_out *o = body;
			if (++opened > 1) // a mapping of this descriptor writes back the dirty pages first
				o->open_flags = FOPEN_DIRECT_IO | FOPEN_KEEP_CACHE;
			length = sizeof *o;
			break;
		}
		case FUSE_OPENDIR:
			length = sizeof(struct fuse_open_out);
			break;
		case FUSE_READ:
			length = page;
			break;
		case FUSE_FLUSH:
			break;
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
		case FUSE_INTERRUPT:
			continue;
		default:
			out->error = -ENOSYS;
		}
		out->len = sizeof *out + length;
		if (write(fd, answer, out->len) < 0 && errno != ENOENT)
			fail("answer");
	}
}

static int openFile(const char *file) {
	int fd = open(file, O_RDWR);
	if (fd < 0)
		fail(file);
	return fd;
}

static void holdMmapLock(const char *file) {
	char *m = mmap(0, page, PROT_READ | PROT_WRITE, MAP_SHARED, openFile(file), 0);
	if (m == MAP_FAILED)
		fail("mmap");
	m[0] = 'x'; // dirty
	mmap(0, page, PROT_READ, MAP_PRIVATE, openFile(file), 0);
}

static void holdEpoll(const char *file) {
	void *m = mmap(0, page, PROT_READ | PROT_WRITE, MAP_PRIVATE, openFile(file), 0);
	if (m == MAP_FAILED)
		fail("mmap");
	int poll = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN};
	epoll_ctl(poll, EPOLL_CTL_ADD, eventfd(1, 0), &event);
	epoll_wait(poll, m, 1, -1);
}

// holdDirectory makes getdents64(2) hold the lock of a directory for reading. mkdir(2) waits for the
// lock, so that no other reader gets it.
static void holdDirectory(const char *file, const char *path) {
	void *m = mmap(0, page, PROT_READ | PROT_WRITE, MAP_PRIVATE, openFile(file), 0);
	if (m == MAP_FAILED)
		fail("mmap");
	int dir = open(path, O_RDONLY | O_DIRECTORY);
	if (dir < 0)
		fail(path);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		usleep(30000); // until getdents64 has the lock
		mkdirat(dir, "hold", 0755);
		_exit(1);
	}
	syscall(SYS_getdents64, dir, m, page);
}

int main(int argc, char **argv) {
	if (argc != 4) {
		fprintf(stderr, "usage: %s mmap|epoll|proc|/PATH DEVICE DIRECTORY\n", argv[0]);
		return 2;
	}
	const char *lock = argv[1];
	int is_mmap = strcmp(lock, "mmap") == 0;
	uid_t uid = getuid();
	gid_t gid = getgid();
	char text[128], file[4096];

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		fail("unshare");
	put("/proc/self/setgroups", "deny");
	snprintf(text, sizeof text, "0 %d 1", uid);
	put("/proc/self/uid_map", text);
	snprintf(text, sizeof text, "0 %d 1", gid);
	put("/proc/self/gid_map", text);
	if (mount("none", "/", 0, MS_REC | MS_PRIVATE, 0))
		fail("make mounts private");
	int fd = openFile(argv[2]); // in this namespace, whose owner may mount it
	snprintf(text, sizeof text, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	if (mount("hold", argv[3], "fuse", MS_NOSUID | MS_NODEV, text))
		fail("mount");
	snprintf(file, sizeof file, "%s/file", argv[3]);
	pid_t holder = fork();
	if (holder < 0)
		fail("fork");
	if (holder == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fd);
		snprintf(text, sizeof text, "/proc/%d", getpid());
		if (is_mmap)
			holdMmapLock(file);
		else if (strcmp(lock, "epoll") == 0)
			holdEpoll(file);
		else
			holdDirectory(file, *lock == '/' ? lock : text);
		return 1;
	}
	serve(fd, is_mmap ? FUSE_WRITE : FUSE_READ, holder);
	return 0;
}
