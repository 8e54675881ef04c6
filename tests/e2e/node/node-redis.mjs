// node-redis.mjs SOCKET PROTOCOL - a script with node-redis; prints what came
// back, a line of JSON for each step.
import { createRequire } from 'node:module';
import { steps, shown } from './steps.mjs';

const require = createRequire(process.env.REDIS_CLIENTS + '/');
const { createClient, RESP_TYPES } = require('redis');
const [path, protocol] = process.argv.slice(2);

const options = { socket: { path }, RESP: Number(protocol) };
const client = createClient(options);
client.on('error', () => {});
await client.connect();
const step = steps();

await step('flush', () => client.flushAll());
await step('ping', () => client.ping());
await step('set', () => client.set('a', '1'));
await step('get', () => client.get('a'));
await step('get none', () => client.get('none'));
await step('set ex', () => client.set('b', 'x', { EX: 100 }));
await step('ttl', () => client.ttl('b'));
await step('set nx', () => client.set('a', '2', { NX: true }));
await step('set xx get', () => client.set('a', '3', { XX: true, GET: true }));
await step('set pxat', () => client.set('p', '3', { PXAT: 33177117420123 }));
await step('pexpiretime', () => client.pExpireTime('p'));
await step('mset', () => client.mSet({ m1: 'x', m2: 'y' }));
await step('mget', () => client.mGet(['m1', 'none', 'm2']));
await step('msetnx', () => client.mSetNX({ m1: 'x', m9: 'y' }));
await step('incr', () => client.incr('n'));
await step('incrby', () => client.incrBy('n', 41));
await step('incrbyfloat', () => client.incrByFloat('f', 1.5));
await step('incr wrong', () => client.incr('m1'));
await step('append', () => client.append('s', 'hello world'));
await step('getrange', () => client.getRange('s', 0, 4));
await step('setrange', () => client.setRange('s', 6, 'there'));
await step('strlen', () => client.strLen('s'));
await step('getdel', () => client.getDel('s'));
await step('getex', () => client.getEx('b', { type: 'PERSIST' }));
await step('expire', () => client.expire('a', 100));
await step('persist', () => client.persist('a'));
await step('exists', () => client.exists(['a', 'b', 'none']));
await step('type', () => client.type('a'));
await step('rename', () => client.rename('m1', 'm3'));
await step('copy', () => client.copy('m3', 'm4'));
await step('del', () => client.del(['m2', 'm3']));
await step('touch', () => client.touch(['a', 'none']));
await step('encoding', () => client.objectEncoding('a'));
await step('dbsize', () => client.dbSize());
await step('keys', async () => (await client.keys('*')).sort());
await step('scan', async () => {
	for (let i = 0; i < 300; i++)
		client.set('scan:' + i, 'x').catch(() => {});
	await client.ping();
	const seen = new Set();
	for await (const keys of client.scanIterator({ MATCH: 'scan:*', COUNT: 20 }))
		for (const key of [].concat(keys))
			seen.add(key);
	return seen.size;
});
await step('multi', () => client.multi().set('t', '1').incr('t').get('t')
	.mGet(['t', 'none']).exec());
await step('multi wrong', async () => {
	try {
		return await client.multi().set('t', 'x').incr('t').get('t').exec();
	} catch (error) {
		return [error.constructor.name, (error.replies || []).map(shown)];
	}
});
await step('watch kept', async () => {
	await client.watch('w');
	return client.multi().set('w', '1').exec();
});
await step('watch broken', async () => {
	const other = client.duplicate();
	await other.connect();
	await client.watch('w');
	await other.set('w', '2');
	await other.close();
	return client.multi().set('w', '3').exec();
});
await step('big', async () => {
	const big = 'b'.repeat(3000000);
	await client.set('big', big);
	return (await client.get('big')) === big;
});
await step('bytes', async () => {
	const bytes = Buffer.from([0, 255, 13, 10, 36, 42, 0]);
	await client.set(Buffer.from([0, 1]), bytes);
	return client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer })
		.get(Buffer.from([0, 1]));
});
await step('at once', async () => Promise.all(
	Array.from({ length: 2000 }, (_, i) => client.incrBy('c', i % 3))));
await step('select', async () => {
	await client.select(3);
	await client.set('here', '3');
	await client.select(0);
	return client.get('here');
});
await step('unknown', () => client.sendCommand(['NOSUCH', 'a', 'b']));
await step('name', async () => {
	await client.clientSetName('me');
	return client.clientGetName();
});
await step('id', async () => typeof await client.clientId());
await step('info', async () => /redis_version:7/.test(await client.info()));
await step('time', async () => typeof await client.time());
await step('config', () => client.configGet('databases'));
await step('killed, and back', async () => {
	const other = client.duplicate();
	await other.connect();
	const before = await client.clientId();
	await other.clientKill({ filter: 'ID', id: before });
	let value;
	for (let i = 0; i < 100 && value !== '1'; i++)
		value = await client.get('a1').then(() => '1', () => undefined);
	const after = await client.clientId();
	await other.close();
	return after !== before;
});
await step('flushdb', () => client.flushDb());
await step('quit', () => client.close());
