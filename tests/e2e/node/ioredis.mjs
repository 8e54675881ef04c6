// ioredis.mjs SOCKET - a script with ioredis; prints what came back, a line of
// JSON for each step.
import { createRequire } from 'node:module';
import { steps } from './steps.mjs';

const require = createRequire(process.env.REDIS_CLIENTS + '/');
const { Redis } = require('ioredis');
const path = process.argv[2];

const client = new Redis({ path });
client.on('error', () => {});
const step = steps();

await step('flush', () => client.flushall());
await step('ping', () => client.ping());
await step('set', () => client.set('a', 1));
await step('get', () => client.get('a'));
await step('get none', () => client.get('none'));
await step('set ex', () => client.set('b', 'x', 'EX', 100));
await step('ttl', () => client.ttl('b'));
await step('set nx', () => client.set('a', 2, 'NX'));
await step('set xx get', () => client.set('a', 3, 'XX', 'GET'));
await step('set wrong', () => client.set('a', 3, 'XX', 'NX'));
await step('mset', () => client.mset({ m1: 'x', m2: 'y' }));
await step('mget', () => client.mget('m1', 'none', 'm2'));
await step('msetnx', () => client.msetnx('m1', 'x', 'm9', 'y'));
await step('incr', () => client.incr('n'));
await step('incrby', () => client.incrby('n', 41));
await step('incrbyfloat', () => client.incrbyfloat('f', 1.5));
await step('incr wrong', () => client.incr('m1'));
await step('append', () => client.append('s', 'hello world'));
await step('getrange', () => client.getrange('s', 0, 4));
await step('setrange', () => client.setrange('s', 6, 'there'));
await step('strlen', () => client.strlen('s'));
await step('getdel', () => client.getdel('s'));
await step('getex', () => client.getex('b', 'PERSIST'));
await step('expire', () => client.expire('a', 100));
await step('persist', () => client.persist('a'));
await step('exists', () => client.exists('a', 'b', 'none'));
await step('type', () => client.type('a'));
await step('rename', () => client.rename('m1', 'm3'));
await step('rename none', () => client.rename('none', 'm3'));
await step('copy', () => client.copy('m3', 'm4'));
await step('del', () => client.del('m2', 'm3'));
await step('unlink', () => client.unlink('m4'));
await step('dbsize', () => client.dbsize());
await step('keys', async () => (await client.keys('*')).sort());
await step('pipeline', () => client.pipeline().set('p', 1).incr('p').get('p')
	.incr('a', 'b').get('none').exec());
await step('multi', () => client.multi().set('t', 1).incr('t').get('t')
	.mget('t', 'none').exec());
await step('multi unpipelined', async () => {
	await client.multi({ pipeline: false });
	const queued = await client.set('u', 1);
	return [queued, await client.exec()];
});
await step('multi wrong', () => client.multi().set('t', 1).set('t').exec());
await step('watch broken', async () => {
	const other = client.duplicate();
	await client.watch('w');
	await other.set('w', 2);
	other.disconnect();
	return client.multi().set('w', 3).exec();
});
await step('scan', async () => {
	const pipeline = client.pipeline();
	for (let i = 0; i < 300; i++)
		pipeline.set('scan:' + i, 'x');
	await pipeline.exec();
	const seen = new Set();
	for await (const keys of client.scanStream({ match: 'scan:*', count: 20 }))
		keys.forEach((key) => seen.add(key));
	return seen.size;
});
await step('big', async () => {
	const big = 'b'.repeat(3000000);
	await client.set('big', big);
	return (await client.get('big')) === big;
});
await step('bytes', async () => {
	await client.set(Buffer.from([0, 1]), Buffer.from([0, 255, 13, 10, 36]));
	return client.getBuffer(Buffer.from([0, 1]));
});
await step('at once', async () => Promise.all(
	Array.from({ length: 2000 }, (_, i) => client.incrby('c', i % 3))));
await step('select', async () => {
	await client.select(3);
	await client.set('here', 3);
	await client.select(0);
	return client.get('here');
});
await step('unknown', () => client.call('NOSUCH', 'a', 'b'));
await step('object', () => client.object('ENCODING', 'a'));
await step('command', async () => (await client.command('INFO', 'get'))[0][0]);
await step('auto pipelining', async () => {
	const auto = client.duplicate({ enableAutoPipelining: true });
	const values = await Promise.all(
		Array.from({ length: 500 }, (_, i) => auto.incrby('q', i)));
	auto.disconnect();
	return values;
});
await step('another db, by its address', async () => {
	const other = client.duplicate({ db: 5, connectionName: 'five' });
	const value = [await other.set('k', 'v'), await other.client('GETNAME')];
	other.disconnect();
	return value;
});
await step('killed, and back', async () => {
	const other = client.duplicate();
	const before = await client.client('ID');
	await other.client('KILL', 'ID', before);
	const value = await client.get('a');
	other.disconnect();
	return [value, await client.client('ID') !== before];
});
await step('flushdb', () => client.flushdb());
await step('quit', () => client.quit());
