// tls.mjs CLIENT PORT CA PASSWORD - "ioredis" or "node-redis" by TLS: set and
// get something, small and large. Prints "ok", or why it was not let in.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(process.env.REDIS_CLIENTS + '/');
const [name, port, authority, password] = process.argv.slice(2);
const where = { host: '127.0.0.1', port: Number(port) };
const ca = readFileSync(authority);
let error;

function make() {
	if (name === 'ioredis') {
		const { Redis } = require('ioredis');
		return new Redis({ ...where, tls: { ca }, password,
			lazyConnect: true, retryStrategy: () => null });
	}
	const { createClient } = require('redis');
	return createClient({ password, socket: { ...where, tls: true, ca,
		reconnectStrategy: false } });
}

const client = make();
client.on('error', (why) => {
	error = why;
});
try {
	await client.connect();
	for (const value of ['small', 'x'.repeat(100000)]) {
		await client.set(name, value);
		if (await client.get(name) !== value)
			throw new Error('another value came back');
	}
	console.log('ok');
} catch (why) {
	console.log((error ?? why).code ?? (error ?? why).message);
}
client.disconnect?.();
process.exit(0);
