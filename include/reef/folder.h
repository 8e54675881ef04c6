/* folder.h - the files of a space in folders, as a file system has them.
 *
 * Files (file.h) lie in folders: the root, which is always there, and those
 * that are made. What file.h does by a name is done in the root. A *file id*
 * names a file or folder whatever it is called; it is never given again.
 *
 * (1) As file.h (5): names are changed atomically, also from folder to folder.
 *     Whoever dies in a rename has renamed, or has not, at the latest when its
 *     session is recovered.
 * (2) A folder is removed only if nothing is in it: of a file that is put into
 * a folder, and the end of that folder, one fails. (3) A folder can be renamed,
 * but stays in the folder it was made in: so it can never come to lie inside
 * itself, whoever renames what at the same time.
 *
 * Errors are those of file.h; of every call with a folder also
 *   -ENOENT   that folder is gone
 *   -ENOTDIR  it is no folder
 *
 * Thread: owner of the handle. */
#ifndef REEF_FOLDER_H
#define REEF_FOLDER_H

#include <reef/file.h>

#ifdef __cplusplus
extern "C" {
#endif

struct reef_files;

/* Zero: the root. */
struct reef_file_id {
	uint64_t at, number;
};

enum reef_file_type {
	REEF_FILE_REGULAR,
	REEF_FILE_FOLDER,
	REEF_FILE_LINK, /* its bytes are a path */
};

struct reef_file_about {
	struct reef_file_id id;
	enum reef_file_type type;
	uint32_t mode; /* permissions, as chmod(2) has them */
	uint32_t user, group;
	uint64_t changed_ns; /* since 1970; as whoever changes it says */
	uint64_t size;	     /* of a folder 0 */
	uint32_t chunk;	     /* as in reef_file_options */
};

/* Open the files of a space; they stay so for as many calls as wanted. *out is
 * the caller's, and must be closed before its space. -EACCES: there are none,
 * and only reading is granted. */
REEF_API int reef_files_open(struct reef_space *space, struct reef_files **out);
REEF_API void reef_files_close(struct reef_files *files); /* NULL is fine */
/* Make the names of a space anew, without any, if the memory that they are in
 * is lost: after -REEF_ELOST or -REEF_EDROPPED from a call on *files, or from
 * reef_files_open (then *files is NULL). For spaces whose files nobody misses:
 * all that there were are gone. Other clients get -REEF_EDROPPED, and do the
 * same. 1: *files are open anew; try again, and here again if that does not
 * help.  0: the names are there, so it was a file that is not. */
REEF_API int reef_files_renew(struct reef_space *space,
			      struct reef_files **files);

/* Look a name up in a folder.  -ENOENT: there is none.  -EINVAL,
 * -ENAMETOOLONG: as reef_file_open. */
REEF_API int reef_files_look(struct reef_files *files,
			     struct reef_file_id folder, const char *name,
			     struct reef_file_about *out);
/* Tell about a file or folder. One round trip.  -ENOENT: it is gone. */
REEF_API int reef_files_about(struct reef_files *files, struct reef_file_id id,
			      struct reef_file_about *out);

#define REEF_FILES_MODE 1u
#define REEF_FILES_OWNER 2u /* user and group */
#define REEF_FILES_CHANGED 4u
/* Set what the flags say to what `about` has.  -ENOENT.  -EPERM: of the root.
 */
REEF_API int reef_files_set(struct reef_files *files, struct reef_file_id id,
			    uint32_t flags,
			    const struct reef_file_about *about);

/* Make a file, folder or link; about: type, mode, user, group, changed_ns,
 * chunk.
 * *out: with its id.  -EEXIST: the name is another's. */
REEF_API int reef_files_make(struct reef_files *files,
			     struct reef_file_id folder, const char *name,
			     const struct reef_file_about *about,
			     struct reef_file_about *out);
/* Open a file by its id; as reef_file_open.  -ENOENT: it is gone.  -EISDIR. */
REEF_API int reef_files_open_file(struct reef_files *files,
				  struct reef_file_id id,
				  struct reef_file **out);

/* Delete a file.  -ENOENT.  -EISDIR: it is a folder. */
REEF_API int reef_files_delete(struct reef_files *files,
			       struct reef_file_id folder, const char *name);
/* Remove a folder.  -ENOENT.  -ENOTDIR.  -ENOTEMPTY: something is in it. */
REEF_API int reef_files_remove_folder(struct reef_files *files,
				      struct reef_file_id folder,
				      const char *name);
/* Rename, as reef_file_rename; a folder may take the place of an empty one,
 * which goes first, and either that of a file which is lost.  -EXDEV: a folder,
 * into another folder.  -EISDIR, -ENOTDIR: one of the two is a folder.
 * -ENOTEMPTY. */
REEF_API int reef_files_rename(struct reef_files *files,
			       struct reef_file_id from_folder,
			       const char *from, struct reef_file_id to_folder,
			       const char *to, uint32_t flags);

/* Call `each` for the names in a folder in order, from behind `after` on (NULL:
 * from the first); nonzero ends the list and is returned. It may call into the
 * handle. What is lost has type REEF_FILE_REGULAR and an id of 0. */
REEF_API int reef_files_list(struct reef_files *files,
			     struct reef_file_id folder, const char *after,
			     int (*each)(void *context, const char *name,
					 const struct reef_file_about *about),
			     void *context);

/* Take a file's name away, but let it live for those of this session that have
 * it open, until reef_files_let_go with *ticket, or until the session ends:
 * then whoever calls reef_files_sweep deletes it.  -EISDIR. */
REEF_API int reef_files_hold(struct reef_files *files,
			     struct reef_file_id folder, const char *name,
			     uint64_t *ticket);
/* Rename, as reef_files_rename, and hold the file that had the name `to`, by
 * the same step: the name is one file's, then the other's, and never nobody's.
 * *ticket: as of reef_files_hold, and *former: whose it is; 0: no file had the
 * name, or another client took it away meanwhile. -REEF_EINDOUBT: also if it
 * cannot be told whether it is held; if it is, until the session ends. */
REEF_API int reef_files_replace(struct reef_files *files,
				struct reef_file_id from_folder,
				const char *from, struct reef_file_id to_folder,
				const char *to, uint64_t *ticket,
				struct reef_file_id *former);
/* Delete a file that is held.  -ENOENT: it is not. */
REEF_API int reef_files_let_go(struct reef_files *files, uint64_t ticket);
/* Delete what sessions that have ended held. */
REEF_API int reef_files_sweep(struct reef_files *files);

#ifdef __cplusplus
}
#endif
#endif
