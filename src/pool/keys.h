/* keys.h - the pool's key, and what is derived from it.
 *
 * (1) The broker alone holds the pool's key K, in a file that only its owner
 *     may read. Clients never do: a user holds a credential, and for each space
 *     a token; both are HMAC-SHA-256 under K and tell nothing about it.
 * (2) What goes into an HMAC is a label of fixed width and then little-endian
 *     integers of fixed width, so no two derivations have the same input.
 * (3) Raising the era of a user or a space makes all earlier ones void.
 * (4) As text, a key is one word: its kind, a hyphen, and base32 of a version,
 *     the fields, the key and a CRC. One wrong or missing character, two
 *     swapped ones, or another kind never pass. There is one text for a key.
 * (5) Secrets are compared in constant time, wiped when done with, and never
 *     logged. The files are those of base/system/private.h, one line each.
 * (6) A node holds its own key K_N, derived from K and its number, and nothing
 *     else. Whatever is proven to the node, or by it, is derived from K_N: so
 *     with all that a node holds nobody is a user, a session at another node,
 *     another node, or the broker towards one, and nobody makes a token.
 * (7) A node's number is never given again, so that K_N is void as soon as the
 *     broker has removed the node.
 * (8) What a session proves to a node is told by the broker alone, while the
 *     session lives, and differs from node to node. That an ended session stays
 *     out is the fence's work (F7).
 *
 *	reef-pool-...	the pool's key
 *	reef-node-...	a node's key: number, key
 *	reef-user-...	a credential: user, era, key
 *	reef-space-...	a token: space, rights, era, key
 *
 *	K --user, era--> credential        K --space, rights, era--> token
 *	K --session--> what resumes it at the broker
 *	K --number--> K_N --> node and broker, to each other
 *	              K_N --session--> that session, at this node
 *	              K_N --extent, epoch--> whoever copies it from this node
 *
 * Thread: any. */
#ifndef REEF_POOL_KEYS_H
#define REEF_POOL_KEYS_H

#include <stdbool.h>
#include <stdint.h>

struct reef_key {
	uint8_t bytes[32];
};

/* What a token allows; bits. */
enum reef_right {
	REEF_RIGHT_READ = 1,
	REEF_RIGHT_WRITE = 2,
	REEF_RIGHT_MANAGE = 4,
	REEF_RIGHT_ALL = 7
};

/* With this a user proves who they are. */
struct reef_credential {
	uint32_t user, era;
	struct reef_key key;
};

/* What opens a space. */
struct reef_token {
	uint32_t space, era;
	uint8_t rights; /* at least one */
	struct reef_key key;
};

/* With this a node proves which one it is, and knows who comes to it. */
struct reef_node_key {
	uint32_t node; /* its number */
	struct reef_key key;
};

/* Room for any of the texts, with its end. */
#define REEF_KEY_TEXT_SIZE 96

/* --- keys --- */

/* A fresh, unpredictable key.  -errno: the kernel gave none. */
int reef_key_create(struct reef_key *out);

/* Derive a key; each of these can fail with -ENOMEM. */
int reef_key_derive_user(const struct reef_key *pool, uint32_t user,
			 uint32_t era, struct reef_key *out);
int reef_key_derive_node(const struct reef_key *pool, uint32_t node,
			 struct reef_key *out);
int reef_key_derive_session(const struct reef_key *pool, uint32_t session,
			    struct reef_key *out);
/* -EINVAL: no right, or an unknown one. */
int reef_key_derive_space(const struct reef_key *pool, uint32_t space,
			  uint8_t rights, uint32_t era, struct reef_key *out);

/* From a node's key: what it and the broker prove to each other; what a session
 * proves to it; what a node proves that is to copy that extent from it, and
 * will have it under that epoch. Also -ENOMEM. */
int reef_key_derive_broker(const struct reef_key *node, struct reef_key *out);
int reef_key_derive_link(const struct reef_key *node, uint32_t session,
			 struct reef_key *out);
int reef_key_derive_pull(const struct reef_key *node, uint32_t extent,
			 uint32_t epoch, struct reef_key *out);

/* Compare two keys, in constant time. */
bool reef_key_equal(const struct reef_key *a, const struct reef_key *b);

/* Overwrite a secret, so that the compiler cannot leave it out. */
void reef_key_wipe(struct reef_key *key);

/* Check that this token was derived from the pool's key. Its era is the
 * caller's to compare.  -REEF_EAUTH: it was not.  -ENOMEM. */
int reef_token_verify(const struct reef_token *token,
		      const struct reef_key *pool);

/* --- text --- */

void reef_key_format(const struct reef_key *key, char text[REEF_KEY_TEXT_SIZE]);
void reef_node_key_format(const struct reef_node_key *key,
			  char text[REEF_KEY_TEXT_SIZE]);
void reef_credential_format(const struct reef_credential *credential,
			    char text[REEF_KEY_TEXT_SIZE]);
void reef_token_format(const struct reef_token *token,
		       char text[REEF_KEY_TEXT_SIZE]);

/* -REEF_ECORRUPT: not such a text, or mistyped.  -REEF_EVERSION: of a newer
 * version. */
int reef_key_parse(const char *text, struct reef_key *out);
int reef_node_key_parse(const char *text, struct reef_node_key *out);
int reef_credential_parse(const char *text, struct reef_credential *out);
int reef_token_parse(const char *text, struct reef_token *out);

/* --- files --- */

/* Save what one of the format functions wrote as a line of a new private file;
 * the text is wiped, whatever comes of it.
 * -EEXIST: something is there; nothing is ever replaced.  -ENOENT and such. */
int reef_key_text_save(const char *path, char text[REEF_KEY_TEXT_SIZE]);

/* -EPERM: the file is not a regular one, not ours, or open to others.
 * -REEF_ECORRUPT, -REEF_EVERSION: as parse.  -ENOENT and such. */
int reef_key_load(const char *path, struct reef_key *out);
int reef_node_key_load(const char *path, struct reef_node_key *out);
int reef_credential_load(const char *path, struct reef_credential *out);

#endif
