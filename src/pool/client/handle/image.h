/* image.h - what saving and restoring a space share.
 *
 * Thread: owner of the handle. */
#ifndef REEF_POOL_CLIENT_HANDLE_IMAGE_H
#define REEF_POOL_CLIENT_HANDLE_IMAGE_H

#include "base/store/store.h"
#include "pool/client/handle/space.h"
#include "pool/image.h"

/* A path, as a folder that is there and a name in it. */
struct client_image_file {
	struct reef_store *store;
	char *path; /* the name points into it */
	const char *name;
};

/* -EINVAL: no name, or what is there is no file.  -EISDIR.  -ENOENT, -ENOTDIR:
 * there is no such folder. */
int client_image_file_init(struct client_image_file *file, const char *path);
void client_image_file_fini(struct client_image_file *file);

/* Tell the caller of a save or a restore how far it is, which may end it. */
int client_image_tell(const struct reef_image_options *options, uint64_t done,
		      uint64_t all);

#endif
