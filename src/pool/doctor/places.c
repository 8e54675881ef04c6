/* places.c - ports and sockets, directories, and files with keys. */
#include "pool/doctor/internal.h"

#include "base/system/private.h"
#include "pool/keys.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <reef/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* --- where it would listen --- */

static void examine_port(struct doctor *doctor, const char *address)
{
	struct reef_finding *finding = doctor_find(doctor, "port %s", address);
	const char *port = strrchr(address, ':');
	int rc = doctor->probes->bind(address);

	port = port ? port + 1 : address;
	switch (rc) {
	case 0:
		doctor_found(finding, "free");
		break;
	case -EADDRINUSE:
		doctor_found(finding, "in use");
		doctor_judge(finding, REEF_VERDICT_WARN,
			     "a pool is running here already, or somebody else "
			     "has the port");
		doctor_command(finding, "ss -ltnp 'sport = :%s'", port);
		break;
	case -EACCES:
		doctor_found(finding, "not allowed");
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "ports this low are not for every user");
		doctor_command(finding,
			       "sudo sysctl -w "
			       "net.ipv4.ip_unprivileged_port_start=%s",
			       port);
		break;
	case -EADDRNOTAVAIL:
	case -EHOSTUNREACH:
		doctor_found(finding, "%s", reef_error_text(rc));
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "this machine does not have the address that "
			     "`listen` names");
		doctor_command(finding, "ip -brief address");
		break;
	default:
		doctor_found(finding, "%s", reef_error_text(rc));
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "nobody could listen there");
	}
}

static bool is_listened_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool is;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	is = fd >= 0 &&
	     (!connect(fd, (struct sockaddr *)&address, sizeof(address)) ||
	      errno == EAGAIN || errno == EPROTOTYPE);
	if (fd >= 0)
		close(fd);
	return is;
}

static void examine_socket(struct doctor *doctor, const char *path)
{
	struct reef_finding *finding = doctor_find(doctor, "socket %s", path);
	struct stat status;

	/* A name in the abstract space belongs to whoever comes first. */
	if (path[0] == '@') {
		doctor_found(finding, "not a file");
	} else if (lstat(path, &status)) {
		doctor_found(finding, "not there");
	} else if (S_ISSOCK(status.st_mode)) {
		doctor_found(finding, is_listened_to(path)
					      ? "somebody serves there"
					      : "left by one that was killed; "
						"the next takes its place");
	} else {
		doctor_found(finding, "there, and not a socket");
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "it is not Reef's, and is left alone");
		doctor_command(finding, "ls -l %s", path);
	}
}

static void examine_addresses(struct doctor *doctor, uint32_t setting)
{
	const struct reef_config *config = doctor->settings->config;
	uint32_t count = reef_config_count(config, setting);

	for (uint32_t i = 0; i < count; i++) {
		const char *address = reef_config_item(config, setting, i);
		const char *colon = strchr(address, ':');

		if (!colon)
			continue;
		if (setting == REEF_SET_REDIS_LISTEN)
			examine_port(doctor, address);
		else if (strncmp(address, "shm:", 4) == 0)
			examine_socket(doctor, colon + 1);
		else
			examine_port(doctor, colon + 1);
	}
}

/* Sockets of holders, of this and of other nodes with this directory. */
static void examine_holders(struct doctor *doctor)
{
	const char *run = doctor->settings->run;
	DIR *folder = run ? opendir(run) : NULL;
	struct dirent *entry;
	char *path;

	while (folder && (entry = readdir(folder))) {
		if (strncmp(entry->d_name, "hold", 4) != 0 ||
		    asprintf(&path, "%s/%s", run, entry->d_name) < 0)
			continue;
		examine_socket(doctor, path);
		free(path);
	}
	if (folder)
		closedir(folder);
}

static void examine_listen(struct doctor *doctor)
{
	static const char *const names[] = {"broker.sock", "node.sock"};
	char *path;

	examine_addresses(doctor, REEF_SET_LISTEN);
	examine_addresses(doctor, REEF_SET_NODE_LISTEN);
	examine_addresses(doctor, REEF_SET_REDIS_LISTEN);
	for (size_t i = 0; i < 2 && doctor->settings->run; i++) {
		if (asprintf(&path, "%s/%s", doctor->settings->run, names[i]) <
		    0)
			return;
		examine_socket(doctor, path);
		free(path);
	}
	examine_holders(doctor);
}

/* --- directories --- */

/* 0: the directory could be made, as we may write into its nearest parent. */
static int check_creatable(const char *path)
{
	char *own = strdup(path), *slash;
	int rc = -ENOENT;

	if (!own)
		return -ENOMEM;
	while (rc == -ENOENT && (slash = strrchr(own, '/'))) {
		slash[slash == own] = '\0';
		rc = access(own, W_OK | X_OK) ? -errno : 0;
		if (slash == own)
			break;
	}
	free(own);
	return rc;
}

static void advise_repair(struct reef_finding *finding,
			  const struct stat *status, const char *path,
			  const char *mode)
{
	if (S_ISLNK(status->st_mode))
		doctor_command(finding, "ls -l %s", path);
	else if (status->st_uid != geteuid())
		doctor_command(finding, "sudo chown %lu %s",
			       (unsigned long)geteuid(), path);
	else
		doctor_command(finding, "chmod %s %s", mode, path);
}

static void examine_directory(struct doctor *doctor, const char *name,
			      const char *path)
{
	struct reef_finding *finding;
	struct stat status;
	const char *fault;
	int rc;

	if (!path)
		return;
	finding = doctor_find(doctor, "%s directory", name);
	if (lstat(path, &status)) {
		rc = errno == ENOENT ? check_creatable(path) : -errno;
		if (rc == 0) {
			doctor_found(finding, "%s: not there yet", path);
			return;
		}
		doctor_found(finding, "%s: not there, and cannot be made: %s",
			     path, reef_error_text(rc));
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "it has to be this user's");
		doctor_command(finding, "sudo install -d -m 700 -o %lu %s",
			       (unsigned long)geteuid(), path);
		return;
	}
	fault = reef_private_fault(&status, S_IFDIR);
	if (!fault) {
		doctor_found(finding, "%s: ours alone", path);
		return;
	}
	doctor_found(finding, "%s: %s", path, fault);
	doctor_judge(finding, REEF_VERDICT_PROBLEM,
		     "it is refused, because others could put something there");
	advise_repair(finding, &status, path, "700");
}

/* --- keys --- */

static int load_key(const char *path)
{
	struct reef_key key;
	int rc = reef_key_load(path, &key);

	reef_key_wipe(&key);
	return rc;
}

static int load_node_key(const char *path)
{
	struct reef_node_key key;
	int rc = reef_node_key_load(path, &key);

	reef_key_wipe(&key.key);
	return rc;
}

static int load_credential(const char *path)
{
	struct reef_credential credential;
	int rc = reef_credential_load(path, &credential);

	reef_key_wipe(&credential.key);
	return rc;
}

static void examine_key(struct doctor *doctor, const char *name,
			const char *path, int (*load)(const char *path))
{
	struct reef_finding *finding;
	struct stat status;
	const char *fault;
	int rc;

	if (!path)
		return;
	finding = doctor_find(doctor, "%s", name);
	if (lstat(path, &status)) {
		rc = -errno;
		doctor_found(finding, "%s: %s", path, reef_error_text(rc));
		/* The broker makes the pool's key, and a node beside it needs
		 * no file; a user's key comes from the pool's owner. */
		if (load == load_credential || rc != -ENOENT)
			doctor_judge(finding, REEF_VERDICT_PROBLEM,
				     "the owner of the pool makes them, with "
				     "`reef user add`");
		return;
	}
	fault = reef_private_fault(&status, S_IFREG);
	if (fault) {
		doctor_found(finding, "%s: %s", path, fault);
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "it is refused: whoever reads it is let in. If "
			     "others have, make a new one");
		advise_repair(finding, &status, path, "600");
		return;
	}
	rc = load(path);
	if (rc == 0) {
		doctor_found(finding, "%s: ours alone, and whole", path);
		return;
	}
	doctor_found(finding, "%s: %s", path, reef_error_text(rc));
	doctor_judge(finding, REEF_VERDICT_PROBLEM,
		     "it is not such a key, or damaged: bring it back from a "
		     "copy");
}

void doctor_places(struct doctor *doctor)
{
	const struct reef_settings *settings = doctor->settings;

	examine_listen(doctor);
	examine_directory(doctor, "data", settings->data);
	examine_directory(doctor, "runtime", settings->run);
	examine_key(doctor, "key file", settings->key_file, load_key);
	examine_key(doctor, "node key", settings->node_key, load_node_key);
	examine_key(doctor, "credential", settings->credential,
		    load_credential);
}
