/* tls.c - see tls.h. */
#include "gateway/redis/server/tls.h"

#include "base/log.h"
#include "base/system/private.h"
#include "gateway/redis/server/thread.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <reef/error.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* Bytes that are received in one go: others have a turn, too. */
#define RECEIVE_MAX ((size_t)256 << 10)

/* --- a context --- */

__attribute__((format(printf, 4, 5))) static int
fail_loading(char *what, size_t size, int rc, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(what, size, format, arguments);
	va_end(arguments);
	ERR_clear_error();
	return rc;
}

/* Why OpenSSL has refused something. */
static const char *reason(void)
{
	const char *text = ERR_reason_error_string(ERR_peek_last_error());

	return text ? text : "OpenSSL does not say why";
}

/* For a key with a passphrase: there is none. */
static int no_passphrase(char *to, int size, int is_writing, void *context)
{
	(void)to;
	(void)size;
	(void)is_writing;
	(void)context;
	return -1;
}

/* Check a file before OpenSSL opens it, which would wait for ever at the end of
 * a pipe. */
static int check_file(const char *path, bool is_private, char *what,
		      size_t size)
{
	const char *fault = NULL;
	struct stat status;

	if (stat(path, &status))
		return fail_loading(what, size, -errno, "%s: %s", path,
				    reef_error_text(-errno));
	if (!S_ISREG(status.st_mode))
		return fail_loading(what, size, -EINVAL, "%s: is not a file",
				    path);
	if (is_private)
		fault = reef_private_fault(&status, S_IFREG);
	return fault ? fail_loading(what, size, -EPERM, "%s: %s: chmod 600 %s",
				    path, fault, path)
		     : 0;
}

static int check_files(const struct redis_tls_options *options, char *what,
		       size_t size)
{
	int rc = check_file(options->key, true, what, size);

	if (!rc)
		rc = check_file(options->certificate, false, what, size);
	if (!rc && options->authorities)
		rc = check_file(options->authorities, false, what, size);
	return rc;
}

static int load_files(SSL_CTX *context, const struct redis_tls_options *options,
		      char *what, size_t size)
{
	int rc = check_files(options, what, size);

	if (rc)
		return rc;
	if (SSL_CTX_use_certificate_chain_file(context, options->certificate) !=
	    1)
		return fail_loading(what, size, -EINVAL,
				    "%s is not a certificate: %s",
				    options->certificate, reason());
	if (SSL_CTX_use_PrivateKey_file(context, options->key,
					SSL_FILETYPE_PEM) != 1)
		return fail_loading(what, size, -EINVAL,
				    "%s is not the key of %s: %s", options->key,
				    options->certificate, reason());
	if (SSL_CTX_check_private_key(context) != 1)
		return fail_loading(what, size, -EINVAL,
				    "%s is not the key of %s", options->key,
				    options->certificate);
	if (options->authorities &&
	    SSL_CTX_load_verify_locations(context, options->authorities,
					  NULL) != 1)
		return fail_loading(what, size, -EINVAL,
				    "%s has no certificates: %s",
				    options->authorities, reason());
	return 0;
}

/* Whether clients are asked for certificates, by default if there are
 * authorities to check them. */
static int ask_clients(SSL_CTX *context,
		       const struct redis_tls_options *options, char *what,
		       size_t size)
{
	enum redis_tls_clients clients = options->clients;
	STACK_OF(X509_NAME) * names;

	if (clients == REDIS_TLS_CLIENTS_AUTO)
		clients = options->authorities ? REDIS_TLS_CLIENTS_REQUIRED
					       : REDIS_TLS_CLIENTS_NO;
	if (clients == REDIS_TLS_CLIENTS_NO)
		return 0;
	if (!options->authorities)
		return fail_loading(what, size, -EINVAL,
				    "there is no --redis-ca to check the "
				    "certificates of clients by");
	SSL_CTX_set_verify(context,
			   clients == REDIS_TLS_CLIENTS_REQUIRED
				   ? SSL_VERIFY_PEER |
					     SSL_VERIFY_FAIL_IF_NO_PEER_CERT
				   : SSL_VERIFY_PEER,
			   NULL);
	names = SSL_load_client_CA_file(options->authorities);
	if (names)
		SSL_CTX_set_client_CA_list(context, names);
	return 0;
}

int redis_tls_load(const struct redis_tls_options *options,
		   struct ssl_ctx_st **out, char *what, size_t what_size)
{
	static const unsigned char name[] = "reef-redis";
	SSL_CTX *context;
	int rc;

	if (!options->certificate || !options->key)
		return fail_loading(what, what_size, -EINVAL,
				    "TLS needs --redis-cert and --redis-key");
	context = SSL_CTX_new(TLS_server_method());
	if (!context)
		return -ENOMEM;
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION |
					     SSL_OP_NO_RENEGOTIATION |
					     SSL_OP_CIPHER_SERVER_PREFERENCE);
	/* Buffers move when they grow, and an idle client has none. */
	SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
					  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
					  SSL_MODE_RELEASE_BUFFERS);
	/* Sessions are resumed by tickets: the door keeps none of them. */
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_session_id_context(context, name, sizeof(name) - 1);
	SSL_CTX_set_default_passwd_cb(context, no_passphrase);
	rc = load_files(context, options, what, what_size);
	if (!rc)
		rc = ask_clients(context, options, what, what_size);
	if (rc)
		SSL_CTX_free(context);
	else
		*out = context;
	return rc;
}

void redis_tls_unload(struct ssl_ctx_st *context)
{
	SSL_CTX_free(context);
}

/* --- a client --- */

int redis_tls_begin(struct ssl_ctx_st *context, struct redis_client *client)
{
	client->tls = SSL_new(context);
	if (!client->tls || SSL_set_fd(client->tls, client->fd) != 1) {
		SSL_free(client->tls);
		client->tls = NULL;
		ERR_clear_error();
		return -ENOMEM;
	}
	SSL_set_accept_state(client->tls);
	return 0;
}

void redis_tls_end(struct redis_client *client)
{
	if (!client->tls)
		return;
	ERR_clear_error();
	if (SSL_is_init_finished(client->tls) && !client->is_tls_broken)
		SSL_shutdown(client->tls);
	SSL_free(client->tls);
	client->tls = NULL;
	ERR_clear_error();
}

bool redis_tls_is_open(const struct redis_client *client)
{
	return !client->tls || SSL_is_init_finished(client->tls);
}

bool redis_wire_has_more(const struct redis_client *client)
{
	return client->tls && SSL_pending(client->tls) > 0;
}

/* What became of a call that did nothing, as recv and send have it. */
static ssize_t explain(struct redis_client *client, int rc)
{
	const int error = SSL_get_error(client->tls, rc);

	switch (error) {
	case SSL_ERROR_WANT_WRITE:
		client->tls_wants_write = true;
		errno = EAGAIN;
		return -1;
	case SSL_ERROR_WANT_READ:
		errno = EAGAIN;
		return -1;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	default:
		break;
	}
	client->is_tls_broken = true;
	/* Who leaves without saying so is no news. */
	if (error == SSL_ERROR_SSL)
		reef_log(REEF_LOG_INFO, "redis", "client %s: TLS: %s",
			 client->address,
			 ERR_reason_error_string(ERR_peek_last_error()));
	ERR_clear_error();
	errno = ECONNRESET;
	return -1;
}

ssize_t redis_tls_receive(struct redis_client *client, void *buffer,
			  size_t size)
{
	char *to = buffer;
	size_t got = 0, some;
	int rc = 1;

	if (size > RECEIVE_MAX)
		size = RECEIVE_MAX;
	client->tls_wants_write = false;
	while (got < size) {
		ERR_clear_error();
		rc = SSL_read_ex(client->tls, to + got, size - got, &some);
		if (rc != 1)
			break;
		got += some;
	}
	/* What ended it is met again by the next call. */
	return got ? (ssize_t)got : explain(client, rc);
}

/* To send nothing is no end of the connection, but a failure. */
static ssize_t explain_send(struct redis_client *client, int rc)
{
	if (explain(client, rc) == 0)
		errno = EPIPE;
	return -1;
}

ssize_t redis_tls_send(struct redis_client *client, const struct iovec *vectors,
		       uint32_t count)
{
	size_t sent = 0, some;
	uint32_t i;
	int rc;

	for (i = 0; i < count; i++) {
		size_t at = 0;

		while (at < vectors[i].iov_len) {
			ERR_clear_error();
			rc = SSL_write_ex(client->tls,
					  (const char *)vectors[i].iov_base +
						  at,
					  vectors[i].iov_len - at, &some);
			if (rc != 1)
				return sent ? (ssize_t)sent
					    : explain_send(client, rc);
			at += some;
			sent += some;
		}
	}
	return (ssize_t)sent;
}
