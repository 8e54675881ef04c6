/* admit.c - who may come in: the password, and certificates, while the door
 * runs. */
#include "base/log.h"
#include "gateway/redis/server/internal.h"
#include "gateway/redis/server/tls.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

/* --- the password --- */

int redis_password_digest(const void *bytes, size_t size,
			  uint8_t out[REDIS_DIGEST_SIZE])
{
	return EVP_Digest(bytes, size, out, NULL, EVP_sha256(), NULL) == 1
		       ? 0
		       : -ENOMEM;
}

bool redis_door_password(struct redis_door *door, const char *bytes,
			 size_t size)
{
	uint8_t given[REDIS_DIGEST_SIZE], wanted[REDIS_DIGEST_SIZE];
	bool is_it;

	if (!door->has_password)
		return true;
	pthread_mutex_lock(&door->password_lock);
	memcpy(wanted, door->password, sizeof(wanted));
	pthread_mutex_unlock(&door->password_lock);
	is_it = redis_password_digest(bytes, size, given) == 0 &&
		CRYPTO_memcmp(given, wanted, sizeof(given)) == 0;
	OPENSSL_cleanse(wanted, sizeof(wanted));
	return is_it;
}

/* True if others than this machine would come in without any proof. */
static bool needs_password(struct redis_door *door)
{
	bool is_open;

	pthread_mutex_lock(&door->tls_lock);
	is_open = door->is_reached_by_tls &&
		  door->tls_clients != REDIS_TLS_CLIENTS_REQUIRED &&
		  !(door->tls_clients == REDIS_TLS_CLIENTS_AUTO &&
		    door->tls_paths[2][0]);
	pthread_mutex_unlock(&door->tls_lock);
	return door->is_reached || is_open;
}

int redis_door_set_password(struct redis_door *door, const char *bytes,
			    size_t size)
{
	uint8_t digest[REDIS_DIGEST_SIZE];
	int rc;

	if (size >= REDIS_PASSWORD_MAX)
		return -EFBIG;
	if (!size && needs_password(door))
		return -EACCES;
	rc = redis_password_digest(bytes, size, digest);
	if (rc)
		return rc;
	pthread_mutex_lock(&door->password_lock);
	memcpy(door->password, digest, sizeof(digest));
	door->has_password = size != 0;
	pthread_mutex_unlock(&door->password_lock);
	return 0;
}

struct redis_guesses *redis_door_guesses(struct redis_door *door)
{
	return door->guesses;
}

/* --- TLS --- */

bool redis_tls_has_certificates(enum redis_tls_clients clients,
				const char *authorities)
{
	return clients == REDIS_TLS_CLIENTS_REQUIRED ||
	       (clients == REDIS_TLS_CLIENTS_AUTO && authorities);
}

bool redis_tls_note(struct redis_door *door,
		    const struct redis_tls_options *options)
{
	const char *const paths[] = {options->certificate, options->key,
				     options->authorities};
	size_t i;

	for (i = 0; i < 3; i++)
		if (paths[i] && strlen(paths[i]) >= REDIS_PATH_SIZE)
			return false;
	for (i = 0; i < 3; i++)
		if (paths[i] != door->tls_paths[i])
			snprintf(door->tls_paths[i], REDIS_PATH_SIZE, "%s",
				 paths[i] ? paths[i] : "");
	door->tls_clients = options->clients;
	return true;
}

/* Load what the options say, the lock held. */
static int load_tls(struct redis_door *door,
		    const struct redis_tls_options *options)
{
	struct ssl_ctx_st *context = NULL;
	char what[sizeof(door->what)] = "no memory";
	int rc;

	if (door->is_reached_by_tls && !door->has_password &&
	    !redis_tls_has_certificates(options->clients, options->authorities))
		return -EACCES;
	rc = redis_tls_load(options, &context, what, sizeof(what));
	if (!rc && !redis_tls_note(door, options))
		rc = -EINVAL;
	if (rc) {
		redis_tls_unload(context);
		reef_log(REEF_LOG_WARNING, "redis",
			 "TLS goes on with what it has: %s", what);
		return rc;
	}
	redis_tls_unload(door->tls);
	door->tls = context;
	return 0;
}

int redis_door_set_tls(struct redis_door *door,
		       const struct redis_tls_options *given)
{
	struct redis_tls_options options = *given;
	int rc = -EOPNOTSUPP;

	pthread_mutex_lock(&door->tls_lock);
	if (!options.certificate)
		options.certificate = door->tls_paths[0];
	if (!options.key)
		options.key = door->tls_paths[1];
	if (!options.authorities)
		options.authorities = door->tls_paths[2];
	if (!options.authorities[0])
		options.authorities = NULL;
	if (options.clients == REDIS_TLS_CLIENTS_AUTO)
		options.clients = door->tls_clients;
	if (door->tls)
		rc = load_tls(door, &options);
	pthread_mutex_unlock(&door->tls_lock);
	return rc;
}

enum redis_tls_clients redis_door_tls(struct redis_door *door,
				      char paths[3][REDIS_PATH_SIZE])
{
	enum redis_tls_clients clients;

	pthread_mutex_lock(&door->tls_lock);
	memcpy(paths, door->tls_paths, sizeof(door->tls_paths));
	clients = door->tls_clients;
	if (clients == REDIS_TLS_CLIENTS_AUTO)
		clients = paths[2][0] ? REDIS_TLS_CLIENTS_REQUIRED
				      : REDIS_TLS_CLIENTS_NO;
	pthread_mutex_unlock(&door->tls_lock);
	return clients;
}
