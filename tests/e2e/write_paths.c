/* write_paths.c - write_paths DIRECTORY [WAY]: change files in every way there
 * is, or in one, under `reef pages`, and look after each at what another
 * process reads, through the pool, beside what is on disk.
 *
 * For each way there is a file that is trusted, all of it cached, and whose
 * size and times stand still: so whoever does not tell leaves old pages. The
 * way `unseen` writes past the library, to show that the look can fail; it is
 * expected to. */
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 8192
#define PAGES 16
#define SIZE (PAGE * PAGES)

extern char **environ;

static char *fresh; /* bytes that no file has */
static char source[4096], file_path[4096];

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", file_path, what, strerror(errno));
	exit(2);
}

#define MUST(expression)                                                       \
	do {                                                                   \
		if ((expression) < 0)                                          \
			fail(#expression);                                     \
	} while (0)

/* --- looking --- */

/* What the library sees of a file's size and times: that it is written does not
 * show. While a way is tried they are a moment old, for all processes. */
static bool *is_fresh;

__attribute__((visibility("default"))) int statx(int folder,
						 const char *restrict path,
						 int flags, unsigned mask,
						 struct statx *restrict out)
{
	int rc = (int)syscall(SYS_statx, folder, path, flags, mask, out);

	if (!rc) {
		out->stx_mtime = out->stx_ctime = out->stx_btime;
		out->stx_size = SIZE;
	}
	return rc;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
							 struct timespec *out)
{
	if (clock != CLOCK_REALTIME_COARSE || !is_fresh || !*is_fresh)
		return (int)syscall(SYS_clock_gettime, clock, out);
	*out = (struct timespec){0};
	return 0;
}

/* 0, or the first page, and one, that is not what is on disk. */
static int look_at(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), wrong = 0;
	char *page = malloc(PAGE), *disk;
	struct stat about;
	ssize_t got;

	if (fd < 0 || fstat(fd, &about))
		fail("look");
	disk = about.st_size ? mmap(NULL, (size_t)about.st_size, PROT_READ,
				    MAP_PRIVATE, fd, 0)
			     : NULL;
	for (off_t at = 0; !wrong && at < about.st_size; at += got) {
		off_t left = about.st_size - at;

		got = pread(fd, page, PAGE, at);
		if (got != (left < PAGE ? left : PAGE) ||
		    memcmp(page, disk + at, (size_t)got) != 0)
			wrong = (int)(at / PAGE) + 1;
	}
	if (!wrong && pread(fd, page, PAGE, about.st_size) != 0)
		wrong = (int)(about.st_size / PAGE) + 1;
	if (disk)
		munmap(disk, (size_t)about.st_size);
	free(page);
	close(fd);
	return wrong;
}

static int questions[2], answers[2];

/* Another process, which has the file open by itself. */
static void serve_looks(void)
{
	char path[4096];
	int wrong;

	while (read(questions[0], path, sizeof(path)) == sizeof(path)) {
		wrong = look_at(path);
		if (write(answers[1], &wrong, sizeof(wrong)) < 0)
			break;
	}
	exit(0);
}

static int ask_other(const char *path)
{
	char text[4096] = "";
	int wrong;

	strcpy(text, path);
	MUST(write(questions[1], text, sizeof(text)));
	if (read(answers[0], &wrong, sizeof(wrong)) != sizeof(wrong))
		fail("the other process");
	return wrong;
}

/* What one of them saw in the middle of a way; 0: nothing wrong. */
static int seen;

static void look_now(void)
{
	int wrong = ask_other(file_path);

	seen = seen ? seen : wrong;
}

/* --- ways to write --- */

static void by_pwrite(int fd)
{
	MUST(pwrite(fd, fresh, 3 * PAGE, PAGE));
}

static void by_pwrite_of_a_part(int fd)
{
	MUST(pwrite(fd, fresh, 100, 2 * PAGE + 77));
}

static void by_pwrite_across(int fd)
{
	MUST(pwrite(fd, fresh, 3 * PAGE, PAGE + 5));
}

static void by_pwrite_past_the_end(int fd)
{
	MUST(pwrite(fd, fresh, PAGE + 50, SIZE + PAGE));
}

static void by_pwrite_of_much(int fd)
{
	for (int i = 0; i < 20; i++)
		MUST(pwrite(fd, fresh, SIZE, (i % 2) * SIZE));
}

static void by_pwrite_at_the_end(int fd)
{
	int other = open(file_path, O_WRONLY | O_APPEND);

	(void)fd;
	MUST(other);
	MUST(pwrite(other, fresh, PAGE, PAGE)); /* Linux appends */
	close(other);
}

static void by_pwrite_that_fails(int fd)
{
	char *volatile nowhere = NULL;

	if (pwrite(fd, nowhere, PAGE, PAGE) >= 0)
		fail("a write from nowhere");
	MUST(pwrite(fd, fresh, 0, PAGE));
}

static void by_pwritev(int fd)
{
	struct iovec parts[] = {{fresh, 5000}, {fresh + 9000, 20000}};

	MUST(pwritev(fd, parts, 2, 3000));
}

static void by_pwritev2(int fd)
{
	struct iovec parts[] = {{fresh, PAGE}};

	MUST(pwritev2(fd, parts, 1, PAGE, 0));
	MUST(pwritev2(fd, parts, 1, -1, 0));
	MUST(pwritev2(fd, parts, 1, 5 * PAGE, RWF_APPEND));
}

static void by_write(int fd)
{
	MUST(lseek(fd, PAGE, SEEK_SET));
	MUST(write(fd, fresh, 2 * PAGE));
}

static void by_writev(int fd)
{
	struct iovec parts[] = {{fresh, 5000}, {fresh + 9000, 20000}};

	MUST(lseek(fd, PAGE, SEEK_SET));
	MUST(writev(fd, parts, 2));
}

static void by_append(int fd)
{
	int other = open(file_path, O_WRONLY | O_APPEND);

	(void)fd;
	MUST(other);
	MUST(write(other, fresh, 100));
	close(other);
}

static void by_ftruncate(int fd)
{
	MUST(ftruncate(fd, 3 * PAGE + 1));
	MUST(ftruncate(fd, SIZE));
}

static void by_truncate(int fd)
{
	(void)fd;
	MUST(truncate(file_path, 3 * PAGE + 1));
}

static void by_punch(int fd)
{
	MUST(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE,
		       3 * PAGE));
}

static void by_posix_fallocate(int fd)
{
	if (posix_fallocate(fd, 0, SIZE + PAGE))
		fail("posix_fallocate");
}

static void by_copy_file_range(int fd)
{
	int from = open(source, O_RDONLY);
	off_t to = 2 * PAGE;

	MUST(copy_file_range(from, NULL, fd, &to, PAGE, 0));
	close(from);
}

static void by_clone(int fd)
{
	int from = open(source, O_RDONLY);

	/* Few file systems can. */
	(void)ioctl(fd, _IOW(0x94, 9, int), from);
	close(from);
}

static void by_sendfile(int fd)
{
	int from = open(source, O_RDONLY);

	MUST(lseek(fd, PAGE, SEEK_SET));
	MUST(sendfile(fd, from, NULL, PAGE));
	close(from);
}

static void by_splice(int fd)
{
	off_t at = PAGE;
	int ends[2];

	MUST(pipe(ends));
	MUST(write(ends[1], fresh, 4096));
	MUST(splice(ends[0], NULL, fd, &at, 4096, 0));
	close(ends[0]);
	close(ends[1]);
}

static void by_open_and_cut(int fd)
{
	int other = open(file_path, O_RDWR | O_TRUNC);

	(void)fd;
	MUST(other);
	MUST(pwrite(other, fresh, 2 * PAGE, 0));
	close(other);
}

static void by_creat(int fd)
{
	int other = creat(file_path, 0600);

	(void)fd;
	MUST(other);
	close(other);
}

static void by_stdio(const char *mode)
{
	FILE *stream = fopen(file_path, mode);

	if (!stream)
		fail("fopen");
	fwrite(fresh, 1, 3 * PAGE, stream);
	fflush(stream);
	/* Before it is closed, and while it may write again. */
	if (ask_other(file_path))
		fail("an open stream");
	fwrite(fresh + 9, 1, 100, stream);
	fclose(stream);
}

static void by_fopen_to_change(int fd)
{
	(void)fd;
	by_stdio("r+");
}

static void by_fopen_to_write(int fd)
{
	(void)fd;
	by_stdio("w");
}

static void by_fopen_to_append(int fd)
{
	(void)fd;
	by_stdio("a");
}

static void by_fdopen(int fd)
{
	FILE *stream = fdopen(dup(fd), "r+");

	fseek(stream, PAGE, SEEK_SET);
	fwrite(fresh, 1, PAGE, stream);
	fclose(stream);
}

static void by_freopen(int fd)
{
	FILE *stream = fopen("/dev/null", "w");

	(void)fd;
	stream = freopen(file_path, "r+", stream);
	fwrite(fresh, 1, PAGE, stream);
	fclose(stream);
}

static void by_dprintf(int fd)
{
	MUST(lseek(fd, PAGE, SEEK_SET));
	MUST(dprintf(fd, "%s and %d", "text", 17));
}

static void by_standard_output(int fd)
{
	int before = dup(STDOUT_FILENO);

	fflush(stdout);
	MUST(lseek(fd, PAGE, SEEK_SET));
	MUST(dup2(fd, STDOUT_FILENO));
	printf("written by libc");
	fflush(stdout);
	MUST(dup2(before, STDOUT_FILENO));
	close(before);
}

/* The lowest number is the one that libc writes to. */
static void by_standard_output_again(int fd)
{
	int before = dup(STDOUT_FILENO);

	fflush(stdout);
	MUST(lseek(fd, PAGE, SEEK_SET));
	close(STDOUT_FILENO);
	MUST(dup(fd));
	printf("written by libc");
	fflush(stdout);
	MUST(dup2(before, STDOUT_FILENO));
	close(before);
}

static void by_standard_output_once_more(int fd)
{
	int before = dup(STDOUT_FILENO);

	fflush(stdout);
	MUST(lseek(fd, PAGE, SEEK_SET));
	close(STDOUT_FILENO);
	MUST(fcntl(fd, F_DUPFD, 0));
	printf("written by libc");
	fflush(stdout);
	MUST(dup2(before, STDOUT_FILENO));
	close(before);
}

/* Ranges as XFS had them before there was fallocate(2); all have that now. */
struct range {
	short type, whence;
	long long start, size;
	int system;
	unsigned process;
	int reserved[4];
};
static struct range range = {.start = PAGE, .size = 2 * PAGE};

static void by_ioctl(int fd)
{
	/* A hole; few file systems have none. */
	(void)ioctl(fd, _IOW('X', 43, struct range), &range);
}

static void by_ioctl_and_number(int fd)
{
	(void)syscall(SYS_ioctl, fd, _IOW('X', 57, struct range), &range);
}

static void by_mmap(int fd)
{
	char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		fail("mmap");
	memcpy(map + PAGE, fresh, PAGE);
	if (ask_other(file_path))
		fail("what is mapped");
	memcpy(map + 3 * PAGE, fresh, PAGE);
	munmap(map, SIZE);
}

static void by_mprotect(int fd)
{
	char *map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		fail("mmap");
	MUST(mprotect(map, SIZE, PROT_READ | PROT_WRITE));
	memcpy(map + PAGE, fresh, PAGE);
	munmap(map, SIZE);
}

static void by_aio(int fd)
{
	struct aiocb request = {.aio_fildes = fd,
				.aio_buf = fresh,
				.aio_nbytes = PAGE,
				.aio_offset = PAGE};
	const struct aiocb *list[] = {&request};

	MUST(aio_write(&request));
	while (aio_error(&request) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	MUST(aio_return(&request));
}

static void by_listio(int fd)
{
	struct aiocb request = {.aio_fildes = fd,
				.aio_buf = fresh,
				.aio_nbytes = PAGE,
				.aio_offset = PAGE,
				.aio_lio_opcode = LIO_WRITE};
	struct aiocb *list[] = {&request};

	MUST(lio_listio(LIO_WAIT, list, 1, NULL));
}

static void by_duplicates(int fd)
{
	int one = dup(fd), two = fcntl(fd, F_DUPFD_CLOEXEC, 100);

	MUST(pwrite(one, fresh, PAGE, PAGE));
	MUST(pwrite(two, fresh + 1, PAGE, 2 * PAGE));
	MUST(dup2(fd, 200));
	MUST(pwrite(200, fresh + 2, PAGE, 3 * PAGE));
	close(one);
	close(two);
	close(200);
}

static void wait_for(pid_t child)
{
	int status;

	MUST(waitpid(child, &status, 0));
	if (status)
		fail("a child");
}

static void by_a_fork(int fd)
{
	pid_t child = fork();

	if (!child) {
		MUST(pwrite(fd, fresh, PAGE, PAGE));
		_exit(0);
	}
	wait_for(child);
}

static void by_a_program(int fd)
{
	char name[4200];
	char *words[] = {"dd",		 "if=/dev/zero", name,
			 "bs=8192",	 "seek=3",	 "count=2",
			 "conv=notrunc", "status=none",	 NULL};
	pid_t child;

	(void)fd;
	snprintf(name, sizeof(name), "of=%s", file_path);
	if (posix_spawnp(&child, "dd", NULL, NULL, words, environ))
		fail("dd");
	wait_for(child);
}

static void by_a_shell(int fd)
{
	char command[9000];

	(void)fd;
	snprintf(command, sizeof(command), "printf 12345 >> '%s'", file_path);
	if (system(command))
		fail("sh");
}

/* A descriptor that the child has, and knows nothing of. */
static void by_a_spawned_cut(int fd)
{
	char *words[] = {"true", NULL};
	posix_spawn_file_actions_t actions;
	pid_t child;

	(void)fd;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 9, file_path,
					 O_RDWR | O_TRUNC, 0);
	if (posix_spawnp(&child, "true", &actions, NULL, words, environ))
		fail("true");
	wait_for(child);
	posix_spawn_file_actions_destroy(&actions);
}

/* A server that was started by root, and is not root any more. */
static void by_another_user(int fd)
{
	if (geteuid())
		return;
	MUST(seteuid(65534));
	MUST(pwrite(fd, fresh, PAGE, PAGE));
	MUST(seteuid(0));
}

static void by_vfork(int fd)
{
	pid_t child;

	(void)fd;
	child = vfork();
	if (!child) {
		execlp("truncate", "truncate", "-s", "20000", file_path, NULL);
		_exit(1);
	}
	wait_for(child);
}

static void by_a_socket(int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = "", byte = 0;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = room,
				 .msg_controllen = sizeof(room)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	int ends[2], got;

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(int));
	MUST(sendmsg(ends[0], &message, 0));
	MUST(recvmsg(ends[1], &message, 0));
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	MUST(pwrite(got, fresh, PAGE, PAGE));
	close(got);
	close(ends[0]);
	close(ends[1]);
}

static void *write_here(void *argument)
{
	MUST(pwrite(*(int *)argument, fresh, PAGE, PAGE));
	return NULL;
}

static void by_a_thread(int fd)
{
	pthread_t threads[20];

	for (int i = 0; i < 20; i++)
		if (pthread_create(&threads[i], NULL, write_here, &fd))
			fail("a thread");
	for (int i = 0; i < 20; i++)
		pthread_join(threads[i], NULL);
}

static void *write_cancelled(void *argument)
{
	pthread_cancel(pthread_self());
	return write_here(argument);
}

/* More of them than the library has handles. */
static void by_cancelled_threads(int fd)
{
	pthread_t thread;

	for (int i = 0; i < 40; i++) {
		if (pthread_create(&thread, NULL, write_cancelled, &fd))
			fail("a thread");
		pthread_join(thread, NULL);
	}
	MUST(pwrite(fd, fresh + 5, PAGE, 2 * PAGE));
}

static _Atomic bool is_changing, is_written;

static void *change_memory(void *argument)
{
	volatile char *bytes = argument;

	is_changing = true;
	for (uint32_t i = 0; !is_written; i++)
		bytes[i * 1024 % (8 * PAGE)]++;
	return NULL;
}

/* Memory that another thread changes meanwhile, as databases do. */
static void by_memory_that_changes(int fd)
{
	char *bytes = malloc(8 * PAGE);
	pthread_t thread;

	memcpy(bytes, fresh, 8 * PAGE);
	is_written = false;
	if (pthread_create(&thread, NULL, change_memory, bytes))
		fail("a thread");
	while (!is_changing)
		sched_yield();
	for (int i = 0; i < 200; i++) {
		MUST(pwrite(fd, bytes, 8 * PAGE, PAGE));
		look_now();
	}
	is_written = true;
	pthread_join(thread, NULL);
	free(bytes);
}

/* A file that was made elsewhere, and is still mapped there. */
static void by_a_map_from_outside(int fd)
{
	struct timespec settle = {.tv_nsec = 150000000};
	char name[4200];
	char *map;
	int other;

	(void)fd;
	snprintf(name, sizeof(name), "%s", file_path);
	*strrchr(name, '/') = '\0';
	strcat(name, ".outside");
	other = open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
	MUST(other);
	MUST(pwrite(other, fresh, SIZE, 0));
	map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
	if (map == MAP_FAILED)
		fail("mmap");
	memcpy(map + PAGE, fresh + 1, PAGE);
	/* A file that takes another's place is brought to the disk at once. */
	MUST(unlink(file_path));
	MUST(rename(name, file_path));
	nanosleep(&settle, NULL);
	*is_fresh = false;
	look_now();
	look_now();
	memcpy(map + PAGE, fresh + 2, PAGE);
	look_now();
	munmap(map, SIZE);
	close(other);
}

static void by_another_name(int fd)
{
	char name[4200];
	int other;

	(void)fd;
	snprintf(name, sizeof(name), "%s.link", file_path);
	MUST(link(file_path, name));
	other = open(name, O_WRONLY);
	MUST(pwrite(other, fresh, PAGE, PAGE));
	MUST(unlink(file_path));
	MUST(rename(name, file_path));
	MUST(pwrite(other, fresh + 7, PAGE, PAGE));
	close(other);
}

static void by_another_file(int fd)
{
	char name[4200];
	int other;

	(void)fd;
	snprintf(name, sizeof(name), "%s.new", file_path);
	other = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
	MUST(other);
	MUST(write(other, fresh, 5 * PAGE));
	MUST(rename(name, file_path));
	MUST(pwrite(other, fresh + 3, PAGE, PAGE));
	close(other);
}

static void by_the_same_inode(int fd)
{
	struct stat before, after = {0};
	int other = -1;

	close(fd);
	for (int i = 0; i < 50 && !after.st_ino; i++) {
		MUST(stat(file_path, &before));
		MUST(unlink(file_path));
		other = open(file_path, O_CREAT | O_EXCL | O_RDWR, 0600);
		MUST(other);
		MUST(pwrite(other, fresh + i, 5 * PAGE, 0));
		MUST(fstat(other, &after));
		close(other);
		if (after.st_ino != before.st_ino)
			after.st_ino = 0;
	}
	MUST(open(file_path, O_RDWR)); /* to be closed */
}

static void by_number(int fd)
{
	MUST(syscall(SYS_pwrite64, fd, fresh, (long)PAGE, (long)PAGE));
	MUST(lseek(fd, 3 * PAGE, SEEK_SET));
	MUST(syscall(SYS_write, fd, fresh, (long)PAGE));
	MUST(syscall(SYS_ftruncate, fd, (long)(7 * PAGE)));
}

/* Without a path that leads there by itself. */
static void by_number_and_folder(int fd)
{
	struct {
		uint64_t flags, mode, resolve;
	} how = {.flags = O_RDWR | O_TRUNC};
	char path[4096];
	char *name;
	int folder, other;

	snprintf(path, sizeof(path), "%s", file_path);
	name = strrchr(path, '/');
	*name++ = '\0';
	folder = open(path, O_RDONLY | O_DIRECTORY);
	MUST(folder);
	(void)fd;
	other = (int)syscall(SYS_openat, folder, name, O_RDWR | O_TRUNC, 0);
	MUST(other);
	look_now();
	MUST(pwrite(other, fresh, 4 * PAGE, 0));
	close(other);
	other = (int)syscall(SYS_openat2, folder, name, &how, sizeof(how));
	MUST(other);
	close(other);
	close(folder);
}

static void by_rings(int fd)
{
	char parameters[256] = "";
	long context = 0;

	(void)fd;
	if (syscall(SYS_io_uring_setup, 4, parameters) >= 0 || errno != ENOSYS)
		fail("io_uring_setup");
	if (syscall(SYS_io_setup, 4, &context) >= 0 || errno != ENOSYS)
		fail("io_setup");
}

static void by_direct_writes(int fd)
{
	void *room = aligned_alloc(4096, 2 * PAGE);
	int other = open(file_path, O_WRONLY | O_DIRECT);

	(void)fd;
	memcpy(room, fresh, 2 * PAGE);
	/* tmpfs has none. */
	if (other >= 0) {
		MUST(pwrite(other, room, 2 * PAGE, PAGE));
		MUST(lseek(other, 4 * PAGE, SEEK_SET));
		MUST(write(other, room, PAGE));
		close(other);
	}
	free(room);
}

static void by_synchronous_writes(int fd)
{
	int other = open(file_path, O_WRONLY | O_SYNC);

	MUST(pwrite(other, fresh, PAGE, PAGE));
	close(other);
	MUST(pwrite(fd, fresh + 1, PAGE, 2 * PAGE));
	MUST(sync_file_range(fd, 0, SIZE, SYNC_FILE_RANGE_WRITE));
	MUST(fdatasync(fd));
}

/* Past the library. */
static void by_unseen(int fd)
{
#ifdef __x86_64__
	register long at __asm__("r10") = PAGE;
	long done = SYS_pwrite64;

	__asm__ volatile("syscall"
			 : "+a"(done)
			 : "D"((long)fd), "S"(fresh), "d"((long)PAGE), "r"(at)
			 : "rcx", "r11", "memory");
	MUST(done);
#else
	(void)fd;
#endif
}

#define WAY(name)                                                              \
	{                                                                      \
#name, by_##name                                               \
	}
static const struct {
	const char *name;
	void (*change)(int fd);
} ways[] = {
	WAY(pwrite),
	WAY(pwrite_of_a_part),
	WAY(pwrite_across),
	WAY(pwrite_past_the_end),
	WAY(pwrite_of_much),
	WAY(pwrite_at_the_end),
	WAY(pwrite_that_fails),
	WAY(pwritev),
	WAY(pwritev2),
	WAY(write),
	WAY(writev),
	WAY(append),
	WAY(ftruncate),
	WAY(truncate),
	WAY(punch),
	WAY(posix_fallocate),
	WAY(copy_file_range),
	WAY(clone),
	WAY(sendfile),
	WAY(splice),
	WAY(open_and_cut),
	WAY(creat),
	WAY(fopen_to_change),
	WAY(fopen_to_write),
	WAY(fopen_to_append),
	WAY(fdopen),
	WAY(freopen),
	WAY(dprintf),
	WAY(standard_output),
	WAY(standard_output_again),
	WAY(standard_output_once_more),
	WAY(ioctl),
	WAY(ioctl_and_number),
	WAY(mmap),
	WAY(mprotect),
	WAY(aio),
	WAY(listio),
	WAY(duplicates),
	WAY(a_fork),
	WAY(a_program),
	WAY(a_shell),
	WAY(a_spawned_cut),
	WAY(another_user),
	WAY(vfork),
	WAY(a_socket),
	WAY(a_thread),
	WAY(cancelled_threads),
	WAY(memory_that_changes),
	WAY(a_map_from_outside),
	WAY(another_name),
	WAY(another_file),
	WAY(the_same_inode),
	WAY(number),
	WAY(number_and_folder),
	WAY(rings),
	WAY(direct_writes),
	WAY(synchronous_writes),
	WAY(unseen),
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static void name_file(const char *directory, unsigned i)
{
	snprintf(file_path, sizeof(file_path), "%s/%s", directory,
		 ways[i].name);
}

static void make_file(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0600);
	char *bytes = malloc(SIZE);

	MUST(fd);
	for (int i = 0; i < SIZE; i++)
		bytes[i] = (char)(rand() | 1);
	MUST(write(fd, bytes, SIZE));
	close(fd);
	free(bytes);
}

/* One way: 0, or the page, and one, that one of the two sees wrong. */
static int try_way(unsigned i)
{
	int fd = open(file_path, O_RDWR), wrong;

	MUST(fd);
	wrong = look_at(file_path);
	wrong = wrong ? wrong : ask_other(file_path);
	MUST(pwrite(fd, fresh + 77, PAGE, 0));
	wrong = wrong ? wrong : ask_other(file_path);
	if (wrong)
		fail("before");
	seen = 0;
	*is_fresh = true;
	ways[i].change(fd);
	wrong = ask_other(file_path);
	wrong = seen ? seen : wrong;
	if (!wrong)
		wrong = look_at(file_path);
	*is_fresh = false;
	close(fd);
	return wrong;
}

int main(int argc, char **argv)
{
	struct timespec settle = {.tv_nsec = 150000000};
	int failed = 0, wrong;

	is_fresh = mmap(NULL, sizeof(*is_fresh), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (is_fresh == MAP_FAILED)
		fail("shared memory");
	MUST(pipe(questions));
	MUST(pipe(answers));
	fresh = malloc(3 * SIZE);
	for (int i = 0; i < 3 * SIZE; i++)
		fresh[i] = (char)(rand() & ~1);
	if (!fork()) {
		close(questions[1]);
		serve_looks();
	}
	close(questions[0]);
	snprintf(source, sizeof(source), "%s/source", argv[1]);
	make_file(source);
	for (unsigned i = 0; i < WAYS; i++) {
		name_file(argv[1], i);
		make_file(file_path);
	}
	/* What was written a moment ago is not cached. */
	nanosleep(&settle, NULL);
	for (unsigned i = 0; i < WAYS; i++) {
		if (argc > 2 && strcmp(argv[2], ways[i].name) != 0)
			continue;
		name_file(argv[1], i);
		wrong = try_way(i);
		printf("%s %d\n", ways[i].name, wrong);
		failed += wrong != 0;
	}
	fflush(stdout);
	close(questions[1]);
	wait(NULL);
	return failed ? 1 : 0;
}
