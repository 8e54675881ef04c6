/* lmdb_file.h - an environment of LMDB in memory, for its peers.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_PEERS_LMDB_FILE_H
#define REEF_BENCH_PEERS_LMDB_FILE_H

#include <errno.h>
#include <lmdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LMDB_FILE_SIZE(keys) (1024 * (keys) + (UINT64_C(1) << 30))

/* The errno for a code of LMDB, whose own are negative. */
static inline int lmdb_errno(int rc)
{
	if (rc == MDB_NOTFOUND)
		return -ENOENT;
	if (rc == MDB_MAP_FULL)
		return -ENOSPC;
	return rc < 0 ? -EIO : -rc;
}

/* Open files of that size whose names are removed at once. tables: so many with
 * a name. */
static inline int lmdb_open_files(uint64_t size, uint32_t tables, MDB_env **env)
{
	const char *base = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
	char directory[64], file[96];
	int rc;

	snprintf(directory, sizeof(directory), "%s/reef-lmdb-XXXXXX", base);
	if (!mkdtemp(directory))
		return -errno;
	rc = lmdb_errno(mdb_env_create(env));
	rc = rc ? rc : lmdb_errno(mdb_env_set_mapsize(*env, size));
	rc = rc ? rc : lmdb_errno(mdb_env_set_maxdbs(*env, tables));
	rc = rc ? rc
		: lmdb_errno(mdb_env_open(*env, directory,
					  MDB_NOSYNC | MDB_WRITEMAP, 0600));
	snprintf(file, sizeof(file), "%s/data.mdb", directory);
	unlink(file);
	snprintf(file, sizeof(file), "%s/lock.mdb", directory);
	unlink(file);
	rmdir(directory);
	return rc;
}

/* Bytes of its file that are in use. */
static inline double lmdb_bytes(MDB_env *env)
{
	MDB_envinfo info;
	MDB_stat stat;

	mdb_env_info(env, &info);
	mdb_env_stat(env, &stat);
	return ((double)info.me_last_pgno + 1) * stat.ms_psize;
}

#endif
