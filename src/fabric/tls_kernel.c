/* tls_kernel.c - hand a connection's TLS over to the kernel. */
#include "fabric/tls_kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SOL_TLS
#define SOL_TLS 282
#endif

static bool is_there;

static void look_for_it(void)
{
	char text[256];
	ssize_t n;
	int fd = open("/proc/sys/net/ipv4/tcp_available_ulp",
		      O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	for (char *rest, *word = strtok_r(text, " \n", &rest); word;
	     word = strtok_r(NULL, " \n", &rest))
		is_there |= strcmp(word, "tls") == 0;
}

bool tls_kernel_is_there(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look_for_it);
	return is_there;
}

/* --- secrets --- */

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* LABEL RANDOM SECRET, the last two in hexadecimal. */
static bool read_secret(const char *line, const char *label,
			uint8_t secret[TLS_SECRET_SIZE])
{
	size_t size = strlen(label);

	if (strncmp(line, label, size) != 0 || line[size] != ' ')
		return false;
	line = strchr(line + size + 1, ' ');
	if (!line || strlen(++line) < (size_t)2 * TLS_SECRET_SIZE)
		return false;
	for (size_t i = 0; i < TLS_SECRET_SIZE; i++) {
		int high = digit(line[2 * i]), low = digit(line[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		secret[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

void tls_kernel_note(struct tls_secrets *secrets, const char *line)
{
	secrets->has_client |=
		read_secret(line, "CLIENT_TRAFFIC_SECRET_0", secrets->client);
	secrets->has_server |=
		read_secret(line, "SERVER_TRAFFIC_SECRET_0", secrets->server);
}

/* HKDF-Expand-Label of RFC 8446, 7.1, without a context. */
static int expand_label(const uint8_t secret[TLS_SECRET_SIZE],
			const char *label, uint8_t *out, uint8_t size)
{
	uint8_t info[32] = {0, size}, made[EVP_MAX_MD_SIZE];
	size_t length = strlen(label);
	unsigned int made_size = 0;

	info[2] = (uint8_t)(6 + length);
	memcpy(info + 3, "tls13 ", 6);
	memcpy(info + 9, label, length);
	info[9 + length] = 0;	  /* the context's length */
	info[9 + length + 1] = 1; /* the first block, which is enough */
	if (!HMAC(EVP_sha256(), secret, TLS_SECRET_SIZE, info, 11 + length,
		  made, &made_size) ||
	    made_size < size)
		return -ENOMEM;
	memcpy(out, made, size);
	OPENSSL_cleanse(made, sizeof(made));
	return 0;
}

/* --- the socket --- */

static int set_direction(int fd, int direction,
			 const uint8_t secret[TLS_SECRET_SIZE])
{
	struct tls12_crypto_info_chacha20_poly1305 info = {
		.info = {.version = TLS_1_3_VERSION,
			 .cipher_type = TLS_CIPHER_CHACHA20_POLY1305},
	};
	int rc = expand_label(secret, "key", info.key, sizeof(info.key));

	if (rc == 0)
		rc = expand_label(secret, "iv", info.iv, sizeof(info.iv));
	if (rc == 0 &&
	    setsockopt(fd, SOL_TLS, direction, &info, sizeof(info)) < 0)
		rc = -errno;
	OPENSSL_cleanse(&info, sizeof(info));
	return rc;
}

int tls_kernel_start(int fd, bool is_connector,
		     const struct tls_secrets *secrets)
{
	const uint8_t *send = is_connector ? secrets->client : secrets->server;
	const uint8_t *receive =
		is_connector ? secrets->server : secrets->client;

	if (!secrets->has_client || !secrets->has_server ||
	    setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) < 0)
		return -ENOTSUP;
	/* Until a direction is set, the socket is as it was. */
	if (set_direction(fd, TLS_RX, receive) < 0)
		return -ENOTSUP;
	return set_direction(fd, TLS_TX, send);
}
