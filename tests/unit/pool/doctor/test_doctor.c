/* test_doctor.c - every finding, on machines that are made up: a folder of
 * files in place of /proc, /sys and /dev, and a kernel that answers as told. */
#include "fixture/scratch.h"

#include "pool/doctor/doctor.h"
#include "pool/keys.h"
#include "pool/settings.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

/* --- a kernel that answers as told --- */

static struct {
	uint64_t memlock, memlock_hard, files, files_hard;
	int pidfd, process_vm, memfd, bind, mtu_rc;
	uint32_t mtu, mtu_most;
	char bound[64];
} answers;

static int fake_limit(int resource, uint64_t *soft, uint64_t *hard)
{
	bool files = resource == RLIMIT_NOFILE;

	*soft = files ? answers.files : answers.memlock;
	*hard = files ? answers.files_hard : answers.memlock_hard;
	return 0;
}

static int fake_pidfd(void)
{
	return answers.pidfd;
}

static int fake_process_vm(void)
{
	return answers.process_vm;
}

static int fake_memfd(void)
{
	return answers.memfd;
}

static int fake_bind(const char *address)
{
	snprintf(answers.bound, sizeof(answers.bound), "%s", address);
	return answers.bind;
}

static int fake_mtu(const char *device, uint32_t port, uint32_t *active,
		    uint32_t *most)
{
	*active = answers.mtu;
	*most = answers.mtu_most;
	return answers.mtu_rc;
}

static const struct reef_doctor_probes fake_probes = {
	.limit = fake_limit,
	.pidfd = fake_pidfd,
	.process_vm = fake_process_vm,
	.memfd = fake_memfd,
	.bind = fake_bind,
	.mtu = fake_mtu,
};

/* --- a machine that lacks nothing --- */

static void file(const char *name, const char *text)
{
	char path[SCRATCH_PATH_MAX];

	snprintf(path, sizeof(path), "root/%s", name);
	scratch_write(path, text, strlen(text), 0600);
}

static void no_file(const char *name)
{
	char path[SCRATCH_PATH_MAX];

	snprintf(path, sizeof(path), "root/%s", name);
	assert_int_equal(unlink(scratch_path(path)), 0);
}

static void meminfo(unsigned available_mib, unsigned huge, unsigned huge_free)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "MemTotal:       16777216 kB\n"
		 "MemFree:          100000 kB\n"
		 "MemAvailable:   %u kB\n"
		 "CommitLimit:    10485760 kB\n"
		 "Committed_AS:   10000000 kB\n"
		 "HugePages_Total:    %u\n"
		 "HugePages_Free:     %u\n"
		 "HugePages_Rsvd:        0\n"
		 "Hugepagesize:       2048 kB\n",
		 available_mib * 1024, huge, huge_free);
	file("proc/meminfo", text);
}

#define CLOCK "sys/devices/system/clocksource/clocksource0/"
#define CLOCK_NOW                                                              \
	"sys/devices/system/clocksource/clocksource0/current_clocksource"
#define SHMEM "sys/kernel/mm/transparent_hugepage/shmem_enabled"
#define PORT "sys/class/infiniband/mlx5_0/ports/1/"

static int make_machine(void **state)
{
	if (scratch_make(state))
		return -1;
	meminfo(8192, 600, 512);
	file("proc/self/cgroup", "0::/user.slice/x.scope\n");
	file("sys/fs/cgroup/user.slice/x.scope/memory.max", "max\n");
	file("proc/self/status", "Name:\treef\nCapEff:\t0000000000000000\n");
	file("proc/sys/vm/overcommit_memory", "0\n");
	file("proc/sys/vm/max_map_count", "65530\n");
	file(SHMEM, "always within_size [advise] never deny force\n");
	file(CLOCK_NOW, "tsc\n");
	file(CLOCK "available_clocksource", "tsc hpet acpi_pm\n");
	memset(&answers, 0, sizeof(answers));
	answers.memlock = answers.memlock_hard = UINT64_MAX;
	answers.files = answers.files_hard = 1 << 20;
	answers.mtu = answers.mtu_most = 4096;
	return 0;
}

/* One RoCE NIC of one port. */
static void add_device(void)
{
	file(PORT "state", "4: ACTIVE\n");
	file(PORT "link_layer", "Ethernet\n");
	file(PORT "rate", "100 Gb/sec (4X EDR)\n");
	file(PORT "gids/0", "fe80:0000:0000:0000:0202:c9ff:fe00:0001\n");
	file(PORT "gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
	file(PORT "gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n");
	file(PORT "gids/3", "fe80:0000:0000:0000:0202:c9ff:fe00:0001\n");
	file(PORT "gid_attrs/types/3", "RoCE v2\n");
	file(PORT "gid_attrs/ndevs/3", "eth7\n");
	file(PORT "gid_attrs/types/0", "IB/RoCE v1\n");
	file(PORT "gid_attrs/types/1", "RoCE v2\n");
	file(PORT "gid_attrs/ndevs/0", "eth7\n");
	file(PORT "gid_attrs/ndevs/1", "eth7\n");
	file("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
	file("dev/infiniband/uverbs0", "");
}

/* --- an examination --- */

static struct reef_settings settings;
static struct reef_diagnosis *diagnosis;

static void examine_with(char **flags)
{
	char home[SCRATCH_PATH_MAX + 8], run[SCRATCH_PATH_MAX + 24];
	char *environment[] = {home, run, NULL}, *argv[16] = {"doctor"};
	struct reef_config_input input = {
		.argc = 1,
		.argv = argv,
		.uses = UINT32_MAX,
		.environment = environment,
		.system_file = "/nonexistent/reef.conf",
	};

	snprintf(home, sizeof(home), "HOME=%s", scratch);
	snprintf(run, sizeof(run), "XDG_RUNTIME_DIR=%s/run", scratch);
	for (; flags && *flags; flags++)
		argv[input.argc++] = *flags;
	assert_int_equal(reef_settings_load(&input, &settings), 0);
	assert_int_equal(reef_diagnosis_create(
				 &(struct reef_doctor_options){
					 .settings = &settings,
					 .root = scratch_path("root"),
					 .probes = &fake_probes,
				 },
				 &diagnosis),
			 0);
}

#define EXAMINE(...) examine_with((char *[]){__VA_ARGS__, NULL})

static void dismiss(void)
{
	reef_diagnosis_destroy(diagnosis);
	reef_settings_fini(&settings);
}

static const struct reef_finding *find(const char *name)
{
	for (uint32_t i = 0; i < diagnosis->count; i++)
		if (strcmp(diagnosis->findings[i].name, name) == 0)
			return &diagnosis->findings[i];
	fail_msg("nothing was found out about %s", name);
	return NULL;
}

/* The one thing that is wrong with the machine; then it is dismissed. */
static void only(const char *name, enum reef_verdict verdict, const char *found,
		 const char *command)
{
	const struct reef_finding *finding = find(name);

	assert_string_equal(finding->found, found);
	assert_string_equal(finding->command, command);
	assert_int_equal(finding->verdict, verdict);
	assert_int_equal(*finding->advice != '\0', verdict != REEF_VERDICT_OK);
	assert_int_equal(diagnosis->warnings, verdict == REEF_VERDICT_WARN);
	assert_int_equal(diagnosis->problems, verdict == REEF_VERDICT_PROBLEM);
	dismiss();
}

#define OK REEF_VERDICT_OK
#define WARN REEF_VERDICT_WARN
#define PROBLEM REEF_VERDICT_PROBLEM

static void doctor_machine_that_lacks_nothing_is_well(void **state)
{
	examine_with(NULL);
	for (uint32_t i = 0; i < diagnosis->count; i++) {
		const struct reef_finding *finding = &diagnosis->findings[i];

		if (finding->verdict != REEF_VERDICT_OK)
			fail_msg("%s: %s", finding->name, finding->found);
		assert_true(*finding->found);
		assert_string_equal(finding->advice, "");
		assert_string_equal(finding->command, "");
	}
	assert_string_equal(find("memory")->found,
			    "8 GiB available of 16 GiB, 1 GiB to be lent");
	assert_string_equal(find("huge pages")->found,
			    "600 of 2 MiB, 512 free; 512 hold what is to be "
			    "lent");
	assert_string_equal(answers.bound, "127.0.0.1:7379");
	dismiss();
}

static void doctor_unknown_things_are_no_problem(void **state)
{
	char *nothing[] = {"proc/meminfo",
			   "proc/self/cgroup",
			   "proc/self/status",
			   "proc/sys/vm/overcommit_memory",
			   "proc/sys/vm/max_map_count",
			   SHMEM,
			   CLOCK_NOW};

	for (size_t i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++)
		no_file(nothing[i]);
	examine_with(NULL);
	assert_int_equal(diagnosis->problems, 0);
	assert_int_equal(diagnosis->warnings, 0);
	assert_string_equal(find("memory")->found, "unknown");
	dismiss();
	/* Nor is nonsense. */
	for (size_t i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++)
		file(nothing[i], "\n:[: \n::\n");
	examine_with(NULL);
	assert_int_equal(diagnosis->problems, 0);
	dismiss();
}

/* --- memory --- */

static void doctor_memory_short_of_what_is_lent_is_told(void **state)
{
	EXAMINE("--lend=20G", "--huge-pages=off");
	only("memory", PROBLEM, "8 GiB available of 16 GiB, 20 GiB to be lent",
	     "reef up --lend 4G");
	EXAMINE("--lend=9G", "--huge-pages=off");
	only("memory", WARN, "8 GiB available of 16 GiB, 9 GiB to be lent",
	     "reef up --lend 4G");
	meminfo(1000, 600, 512);
	EXAMINE("--lend=1G");
	only("memory", WARN, "1000 MiB available of 16 GiB, 1 GiB to be lent",
	     "reef up --lend 500M");
}

static void doctor_cgroup_limit_is_found(void **state)
{
	file("sys/fs/cgroup/user.slice/memory.max", "536870912\n");
	file("sys/fs/cgroup/user.slice/memory.current", "1048576\n");
	examine_with(NULL);
	only("memory limit", PROBLEM,
	     "512 MiB, 1 MiB of it used (control group /user.slice)",
	     "sudo systemctl set-property user.slice MemoryMax=4G");
	/* The lowest counts, wherever it is. */
	file("sys/fs/cgroup/user.slice/x.scope/memory.max", "1181116006\n");
	file("sys/fs/cgroup/user.slice/memory.max", "8589934592\n");
	file("sys/fs/cgroup/user.slice/x.scope/memory.current", "734003200\n");
	examine_with(NULL);
	only("memory limit", WARN,
	     "1.1 GiB, 700 MiB of it used (control group "
	     "/user.slice/x.scope)",
	     "sudo systemctl set-property x.scope MemoryMax=4G");
	EXAMINE("--lend=64M");
	assert_int_equal(find("memory limit")->verdict, OK);
	dismiss();
}

static void doctor_cgroup_of_a_container_is_found(void **state)
{
	file("proc/self/cgroup", "0::/\n");
	file("sys/fs/cgroup/memory.max", "536870912\n");
	examine_with(NULL);
	only("memory limit", PROBLEM,
	     "512 MiB, 0 bytes of it used (control group /)", "");
}

static void doctor_cgroup_version_1_is_found(void **state)
{
	file("proc/self/cgroup", "12:cpu:/a\n4:memory:/box/1\n0::/\n");
	file("sys/fs/cgroup/memory/box/1/memory.limit_in_bytes",
	     "9223372036854771712\n");
	examine_with(NULL);
	only("memory limit", OK, "none", "");
	file("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "536870912\n");
	file("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "4096\n");
	examine_with(NULL);
	only("memory limit", PROBLEM,
	     "512 MiB, 4 KiB of it used (control group /box)", "");
}

static void doctor_strict_overcommit_is_weighed(void **state)
{
	file("proc/sys/vm/overcommit_memory", "2\n");
	examine_with(NULL);
	only("overcommit", PROBLEM, "mode 2 (strict), 474 MiB left",
	     "sudo sysctl -w vm.overcommit_memory=0");
	EXAMINE("--lend=128M");
	only("overcommit", OK, "mode 2 (strict), 474 MiB left", "");
}

static void doctor_huge_pages_are_counted(void **state)
{
	meminfo(8192, 0, 0);
	examine_with(NULL);
	only("huge pages", WARN,
	     "0 of 2 MiB, 0 free; 512 hold what is to be lent",
	     "sudo sysctl -w vm.nr_hugepages=512");
	EXAMINE("--huge-pages=off");
	only("huge pages", OK,
	     "0 of 2 MiB, 0 free; 512 hold what is to be lent", "");
	/* Those in use are somebody else's. */
	meminfo(8192, 600, 511);
	EXAMINE("--huge-pages=on");
	only("huge pages", PROBLEM,
	     "600 of 2 MiB, 511 free; 512 hold what is to be lent",
	     "sudo sysctl -w vm.nr_hugepages=601");
}

static void doctor_transparent_huge_pages_matter_without_others(void **state)
{
	file(SHMEM, "always within_size advise [never] deny force\n");
	examine_with(NULL);
	only("transparent huge pages", OK, "never, for shared memory", "");
	meminfo(8192, 0, 0);
	examine_with(NULL);
	assert_int_equal(find("transparent huge pages")->verdict, WARN);
	assert_string_equal(find("transparent huge pages")->command,
			    "echo advise | sudo tee /" SHMEM);
	dismiss();
}

/* --- limits --- */

static void doctor_locked_memory_matters_to_nics(void **state)
{
	answers.memlock = answers.memlock_hard = 8 << 20;
	examine_with(NULL);
	only("locked memory", OK, "8 MiB", "");
	add_device();
	examine_with(NULL);
	only("locked memory", PROBLEM, "8 MiB",
	     "echo '* - memlock unlimited' | sudo tee "
	     "/etc/security/limits.d/reef.conf");
	answers.memlock_hard = UINT64_MAX;
	examine_with(NULL);
	only("locked memory", PROBLEM, "8 MiB", "ulimit -l unlimited");
	file("proc/self/status", "Name:\treef\nCapEff:\t0000000000004000\n");
	examine_with(NULL);
	only("locked memory", OK, "unlimited, by CAP_IPC_LOCK", "");
}

static void doctor_open_files_are_enough_for_sessions(void **state)
{
	answers.files = 1024;
	examine_with(NULL);
	only("open files", WARN, "1024 at a time", "ulimit -n 8273");
	answers.files_hard = 4096;
	examine_with(NULL);
	only("open files", WARN, "1024 at a time",
	     "echo '* - nofile 8273' | sudo tee "
	     "/etc/security/limits.d/reef-files.conf");
	answers.files = answers.files_hard = 64;
	examine_with(NULL);
	only("open files", PROBLEM, "64 at a time",
	     "echo '* - nofile 8273' | sudo tee "
	     "/etc/security/limits.d/reef-files.conf");
}

static void doctor_mappings_are_enough_for_extents(void **state)
{
	file("proc/sys/vm/max_map_count", "30000\n");
	examine_with(NULL);
	only("mappings", WARN, "30000 in a process",
	     "sudo sysctl -w vm.max_map_count=65530");
	file("proc/sys/vm/max_map_count", "1000\n");
	examine_with(NULL);
	only("mappings", PROBLEM, "1000 in a process",
	     "sudo sysctl -w vm.max_map_count=65530");
}

/* --- the kernel --- */

static void doctor_missing_calls_are_told(void **state)
{
	answers.pidfd = -ENOSYS;
	examine_with(NULL);
	only("pidfd", PROBLEM, "does not work: Function not implemented",
	     "export REEF_FABRICS=tcp");
	answers.pidfd = 0;
	answers.process_vm = -EPERM;
	examine_with(NULL);
	only("process_vm", WARN, "does not work: Operation not permitted", "");
	answers.process_vm = 0;
	answers.memfd = -EPERM;
	examine_with(NULL);
	only("memfd", PROBLEM, "does not work: Operation not permitted", "");
}

static void doctor_slow_clock_is_told(void **state)
{
	file(CLOCK_NOW, "hpet\n");
	examine_with(NULL);
	only("clock", WARN, "hpet", "echo tsc | sudo tee /" CLOCK_NOW);
	file(CLOCK "available_clocksource", "hpet acpi_pm\n");
	examine_with(NULL);
	only("clock", WARN, "hpet", "");
	file(CLOCK_NOW, "kvm-clock\n");
	examine_with(NULL);
	only("clock", OK, "kvm-clock", "");
}

static void doctor_plain_text_is_told(void **state)
{
	examine_with(NULL);
	only("encryption of tcp", OK, "on, but on loopback, by OpenSSL", "");
	file("proc/sys/net/ipv4/tcp_available_ulp", "mptcp tls\n");
	EXAMINE("--tls", "yes");
	only("encryption of tcp", OK, "on, by the kernel", "");
	no_file("proc/sys/net/ipv4/tcp_available_ulp");
	EXAMINE("--tls", "no");
	only("encryption of tcp", WARN, "off", "");
}

/* --- RDMA --- */

static void doctor_device_in_order_is_described(void **state)
{
	add_device();
	examine_with(NULL);
	only("rdma mlx5_0:1", OK,
	     "ACTIVE, Ethernet, 100 Gb/sec (4X EDR), MTU 4096 of 4096, GID 1 "
	     "(RoCE v2, 10.0.0.1)",
	     "");
	examine_with(NULL);
	only("rdma mlx5_0 access", OK,
	     "/dev/infiniband/uverbs0, readable and writable", "");
}

static void doctor_no_device_matters_if_asked_for(void **state)
{
	examine_with(NULL);
	only("rdma", OK, "no device", "");
	EXAMINE("--fabrics=shm,verbs");
	only("rdma", PROBLEM, "no device",
	     "sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe "
	     "netdev INTERFACE");
}

static void doctor_port_that_is_down_is_told(void **state)
{
	add_device();
	file(PORT "state", "1: DOWN\n");
	examine_with(NULL);
	only("rdma mlx5_0:1", WARN,
	     "DOWN, Ethernet, 100 Gb/sec (4X EDR), MTU 4096 of 4096, GID 1 "
	     "(RoCE v2, 10.0.0.1)",
	     "sudo ip link set dev eth7 up");
	EXAMINE("--listen=verbs:10.0.0.1:7337");
	assert_int_equal(find("rdma mlx5_0:1")->verdict, PROBLEM);
	dismiss();
	file(PORT "link_layer", "InfiniBand\n");
	file(PORT "state", "2: INIT\n");
	examine_with(NULL);
	assert_string_equal(find("rdma mlx5_0:1")->command,
			    "sudo systemctl start opensm");
	dismiss();
	file(PORT "state", "1: DOWN\n");
	examine_with(NULL);
	assert_int_equal(find("rdma mlx5_0:1")->verdict, WARN);
	assert_string_equal(find("rdma mlx5_0:1")->command, "");
	dismiss();
}

static void doctor_port_without_good_gid_is_told(void **state)
{
	add_device();
	no_file(PORT "gids/1");
	examine_with(NULL);
	only("rdma mlx5_0:1", WARN,
	     "ACTIVE, Ethernet, 100 Gb/sec (4X EDR), MTU 4096 of 4096, GID 3 "
	     "(RoCE v2, fe80::202:c9ff:fe00:1)",
	     "sudo ip addr add ADDRESS/24 dev eth7");
	no_file(PORT "gids/0");
	no_file(PORT "gids/3");
	file("sys/class/infiniband/mlx5_0/device/net/eth8/x", "");
	examine_with(NULL);
	only("rdma mlx5_0:1", WARN,
	     "ACTIVE, Ethernet, 100 Gb/sec (4X EDR), MTU 4096 of 4096, no GID",
	     "sudo ip addr add ADDRESS/24 dev eth8");
}

static void doctor_small_packets_are_told(void **state)
{
	add_device();
	answers.mtu = 1024;
	examine_with(NULL);
	only("rdma mlx5_0:1", WARN,
	     "ACTIVE, Ethernet, 100 Gb/sec (4X EDR), MTU 1024 of 4096, GID 1 "
	     "(RoCE v2, 10.0.0.1)",
	     "sudo ip link set dev eth7 mtu 4200");
	/* It cannot do more. */
	answers.mtu_most = 1024;
	examine_with(NULL);
	assert_int_equal(find("rdma mlx5_0:1")->verdict, OK);
	dismiss();
	answers.mtu_rc = -EIO;
	examine_with(NULL);
	only("rdma mlx5_0:1", OK,
	     "ACTIVE, Ethernet, 100 Gb/sec (4X EDR), GID 1 (RoCE v2, 10.0.0.1)",
	     "");
}

static void doctor_device_without_file_is_told(void **state)
{
	add_device();
	no_file("dev/infiniband/uverbs0");
	examine_with(NULL);
	only("rdma mlx5_0 access", PROBLEM,
	     "/dev/infiniband/uverbs0: No such file or directory",
	     "sudo udevadm trigger");
	/* Also for root: nobody goes through a file. */
	assert_int_equal(rmdir(scratch_path("root/dev/infiniband")), 0);
	file("dev/infiniband", "");
	examine_with(NULL);
	only("rdma mlx5_0 access", PROBLEM,
	     "/dev/infiniband/uverbs0: Not a directory",
	     "sudo chmod 666 /dev/infiniband/uverbs0");
	no_file("sys/class/infiniband_verbs/uverbs0/ibdev");
	examine_with(NULL);
	only("rdma mlx5_0 access", PROBLEM, "no device file",
	     "sudo modprobe ib_uverbs");
}

static void doctor_build_without_verbs_is_told(void **state)
{
	add_device();
	answers.mtu_rc = -ENOSYS;
	examine_with(NULL);
	only("rdma in this build", WARN, "no",
	     "sudo apt install libibverbs-dev");
}

/* --- places --- */

static void doctor_ports_are_tried(void **state)
{
	answers.bind = -EADDRINUSE;
	EXAMINE("--node-listen=shm:@x", "--redis-listen=none");
	only("port 127.0.0.1:7337", WARN, "in use", "ss -ltnp 'sport = :7337'");
	answers.bind = -EACCES;
	EXAMINE("--node-listen=shm:@x", "--redis-listen=none",
		"--listen=tcp:[::1]:80");
	only("port [::1]:80", PROBLEM, "not allowed",
	     "sudo sysctl -w net.ipv4.ip_unprivileged_port_start=80");
	answers.bind = -EADDRNOTAVAIL;
	EXAMINE("--node-listen=shm:@x", "--redis-listen=none",
		"--listen=tcp:10.9.9.9:7337");
	only("port 10.9.9.9:7337", PROBLEM, "Cannot assign requested address",
	     "ip -brief address");
	answers.bind = -EADDRINUSE;
	EXAMINE("--node-listen=shm:@x", "--listen=shm:@y",
		"--redis-listen=127.0.0.1:7379");
	only("port 127.0.0.1:7379", WARN, "in use", "ss -ltnp 'sport = :7379'");
	answers.bind = -EIO;
	EXAMINE("--node-listen=shm:@x", "--redis-listen=none");
	only("port 127.0.0.1:7337", PROBLEM, "Input/output error", "");
}

static void doctor_real_port_in_use_is_noticed(void **state)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char text[32];

	assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
	assert_int_equal(listen(fd, 1), 0);
	getsockname(fd, (struct sockaddr *)&address, &size);
	snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(address.sin_port));
	assert_int_equal(reef_doctor_probes_real.bind(text), -EADDRINUSE);
	close(fd);
	assert_int_equal(reef_doctor_probes_real.bind(text), 0);
	assert_int_equal(reef_doctor_probes_real.bind("127.0.0.1:0"), 0);
}

static void doctor_socket_of_another_kind_is_told(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char name[SCRATCH_PATH_MAX + 16];
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	assert_int_equal(mkdir(scratch_path("run"), 0700), 0);
	assert_int_equal(mkdir(scratch_path("run/reef"), 0700), 0);
	snprintf(name, sizeof(name), "socket %s",
		 scratch_path("run/reef/node.sock"));
	snprintf(address.sun_path, sizeof(address.sun_path), "%s",
		 scratch_path("run/reef/node.sock"));
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)),
			 0);
	assert_int_equal(listen(fd, 1), 0);
	examine_with(NULL);
	only(name, OK, "somebody serves there", "");
	close(fd);
	examine_with(NULL);
	only(name, OK, "left by one that was killed; the next takes its place",
	     "");
	assert_int_equal(unlink(scratch_path("run/reef/node.sock")), 0);
	scratch_write("run/reef/node.sock", "", 0, 0600);
	examine_with(NULL);
	assert_int_equal(find(name)->verdict, PROBLEM);
	dismiss();
}

static void doctor_directories_must_be_private(void **state)
{
	char command[SCRATCH_PATH_MAX + 32];

	assert_int_equal(mkdir(scratch_path("run"), 0700), 0);
	assert_int_equal(mkdir(scratch_path("run/reef"), 0755), 0);
	chmod(scratch_path("run/reef"), 0755);
	snprintf(command, sizeof(command), "chmod 700 %s",
		 scratch_path("run/reef"));
	examine_with(NULL);
	assert_string_equal(find("runtime directory")->command, command);
	assert_int_equal(find("runtime directory")->verdict, PROBLEM);
	assert_int_equal(diagnosis->problems, 1);
	dismiss();
	rmdir(scratch_path("run/reef"));
	assert_int_equal(symlink(".", scratch_path("run/reef")), 0);
	examine_with(NULL);
	assert_non_null(
		strstr(find("runtime directory")->found, "symbolic link"));
	assert_int_equal(diagnosis->problems, 1);
	dismiss();
}

static void doctor_directory_that_cannot_be_made_is_told(void **state)
{
	char flag[SCRATCH_PATH_MAX + 32];

	/* Also for root: nobody makes directories in a file. */
	scratch_write("file", "", 0, 0600);
	snprintf(flag, sizeof(flag), "--data=%s", scratch_path("file/data"));
	EXAMINE(flag);
	assert_int_equal(find("data directory")->verdict, PROBLEM);
	assert_non_null(
		strstr(find("data directory")->command, "sudo install -d"));
	dismiss();
	examine_with(NULL);
	assert_non_null(strstr(find("data directory")->found, "not there yet"));
	dismiss();
	assert_int_equal(access(scratch_path(".local"), F_OK), -1);
}

static void doctor_keys_must_be_private_and_whole(void **state)
{
	const char *path = scratch_path("pool.key");
	char flag[SCRATCH_PATH_MAX + 32], command[SCRATCH_PATH_MAX + 32];
	char text[REEF_KEY_TEXT_SIZE];
	struct reef_key key;

	snprintf(flag, sizeof(flag), "--key-file=%s", path);
	snprintf(command, sizeof(command), "chmod 600 %s", path);
	EXAMINE(flag);
	assert_int_equal(find("key file")->verdict, OK);
	dismiss();
	assert_int_equal(reef_key_create(&key), 0);
	reef_key_format(&key, text);
	assert_int_equal(reef_key_text_save(path, text), 0);
	EXAMINE(flag);
	assert_non_null(strstr(find("key file")->found, "ours alone"));
	assert_int_equal(diagnosis->problems, 0);
	dismiss();
	chmod(path, 0640);
	EXAMINE(flag);
	assert_int_equal(find("key file")->verdict, PROBLEM);
	assert_string_equal(find("key file")->command, command);
	dismiss();
	scratch_write("pool.key", "nonsense", 8, 0600);
	EXAMINE(flag);
	assert_int_equal(find("key file")->verdict, PROBLEM);
	dismiss();
	/* A user's must be there. */
	snprintf(flag, sizeof(flag), "--credential=%s", scratch_path("none"));
	EXAMINE(flag);
	assert_int_equal(find("credential")->verdict, PROBLEM);
	dismiss();
}

/* Write a process's command line. */
static void process(const char *name, const char *words, size_t size)
{
	char path[SCRATCH_PATH_MAX];

	snprintf(path, sizeof(path), "root/proc/%s/cmdline", name);
	scratch_write(path, words, size, 0600);
}

static void doctor_names_every_holder(void **state)
{
	static const char with[] =
		"reef\0hold\0pool 00000000000000ab node 2 extents 1 bytes "
		"4194304 alone-since 0   \0"
		"5\0"
		"600\0/run/hold.sock";
	static const char alone[] =
		"reef\0hold\0pool 00000000000000ac node 3 extents 2 bytes "
		"0 alone-since 4102444800\0"
		"5";
	static const char *const others[] = {"reef\0hold", "reef", "\0\0\0",
					     "reef\0hold\0pool x"};

	process("71", with, sizeof(with));
	process("72", alone, sizeof(alone));
	for (uint32_t i = 0; i < 4; i++) {
		char name[8];

		snprintf(name, sizeof(name), "8%u", i);
		process(name, others[i], i == 3 ? 16 : i ? 4 : 9);
	}
	examine_with(NULL);
	assert_string_equal(find("holder 71")->found,
			    "has 4 MiB in 1 extent of node 2 of pool "
			    "00000000000000ab");
	assert_string_equal(find("holder 72")->found,
			    "has 0 bytes in 2 extents of node 3 of pool "
			    "00000000000000ac, and waits for its next start "
			    "for 0 s now");
	for (uint32_t i = 0; i < diagnosis->count; i++)
		assert_null(strstr(diagnosis->findings[i].name, "holder 8"));
	dismiss();
}

/* A table of `reef pages`, of that many bytes; its line of /proc/locks. */
static void table(const char *name, size_t size, char line[128])
{
	char path[SCRATCH_PATH_MAX], text[64];
	struct stat status;
	char *bytes = calloc(1, size);

	snprintf(text, sizeof(text), "reef-pages-2-%u-%s", (unsigned)geteuid(),
		 name);
	snprintf(path, sizeof(path), "root/dev/shm/%s", text);
	assert_non_null(bytes);
	memset(bytes, 1, size);
	scratch_write(path, bytes, size, 0600);
	free(bytes);
	assert_int_equal(stat(scratch_path(path), &status), 0);
	snprintf(line, 128,
		 "1: FLOCK  ADVISORY  READ 71 %02x:%02x:%llu 0 EOF\n",
		 major(status.st_dev), minor(status.st_dev),
		 (unsigned long long)status.st_ino);
}

static void doctor_finds_tables_that_nobody_uses(void **state)
{
	char line[128], used[128], wanted[64];

	table("small", 4096, line);
	table("used", 200000, used);
	file("proc/locks", used);
	examine_with(NULL);
	for (uint32_t i = 0; i < diagnosis->count; i++)
		assert_string_not_equal(diagnosis->findings[i].name, "tables");
	dismiss();
	table("left", 200000, line);
	examine_with(NULL);
	assert_int_equal(find("tables")->verdict, REEF_VERDICT_WARN);
	assert_non_null(strstr(find("tables")->found, "1 of `reef pages`"));
	snprintf(wanted, sizeof(wanted), "rm /dev/shm/reef-pages-2-%u-left",
		 (unsigned)geteuid());
	assert_string_equal(find("tables")->command, wanted);
	dismiss();
	/* Nobody knows who uses them. */
	no_file("proc/locks");
	examine_with(NULL);
	for (uint32_t i = 0; i < diagnosis->count; i++)
		assert_string_not_equal(diagnosis->findings[i].name, "tables");
	dismiss();
}

static void doctor_looks_at_the_real_machine(void **state)
{
	struct reef_doctor_options options = {.settings = &settings};

	examine_with(NULL);
	reef_diagnosis_destroy(diagnosis);
	assert_int_equal(reef_diagnosis_create(&options, &diagnosis), 0);
	assert_true(diagnosis->count > 10);
	assert_string_equal(find("memfd")->found, "works");
	dismiss();
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, make_machine, scratch_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(doctor_machine_that_lacks_nothing_is_well),
		TEST(doctor_unknown_things_are_no_problem),
		TEST(doctor_memory_short_of_what_is_lent_is_told),
		TEST(doctor_cgroup_limit_is_found),
		TEST(doctor_cgroup_of_a_container_is_found),
		TEST(doctor_cgroup_version_1_is_found),
		TEST(doctor_strict_overcommit_is_weighed),
		TEST(doctor_huge_pages_are_counted),
		TEST(doctor_transparent_huge_pages_matter_without_others),
		TEST(doctor_locked_memory_matters_to_nics),
		TEST(doctor_open_files_are_enough_for_sessions),
		TEST(doctor_mappings_are_enough_for_extents),
		TEST(doctor_missing_calls_are_told),
		TEST(doctor_slow_clock_is_told),
		TEST(doctor_plain_text_is_told),
		TEST(doctor_device_in_order_is_described),
		TEST(doctor_no_device_matters_if_asked_for),
		TEST(doctor_port_that_is_down_is_told),
		TEST(doctor_port_without_good_gid_is_told),
		TEST(doctor_small_packets_are_told),
		TEST(doctor_device_without_file_is_told),
		TEST(doctor_build_without_verbs_is_told),
		TEST(doctor_ports_are_tried),
		TEST(doctor_real_port_in_use_is_noticed),
		TEST(doctor_socket_of_another_kind_is_told),
		TEST(doctor_directories_must_be_private),
		TEST(doctor_directory_that_cannot_be_made_is_told),
		TEST(doctor_keys_must_be_private_and_whole),
		TEST(doctor_names_every_holder),
		TEST(doctor_finds_tables_that_nobody_uses),
		TEST(doctor_looks_at_the_real_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
