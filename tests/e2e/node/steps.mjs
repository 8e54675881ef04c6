// What the scripts share: run a step, print what came of it.

// A value as text that says all that matters about it.
export function shown(value) {
	if (value instanceof Error)
		return { error: value.message };
	if (Buffer.isBuffer(value))
		return { bytes: value.toString('hex') };
	if (value instanceof Map)
		return { map: [...value].map(shown) };
	if (value instanceof Date)
		return { date: 1 };
	if (Array.isArray(value))
		return value.map(shown);
	if (typeof value === 'bigint')
		return { big: String(value) };
	if (value === undefined)
		return { nothing: 1 };
	return value;
}

export function steps() {
	return async (name, run) => {
		let value;
		try {
			value = await run();
		} catch (error) {
			value = error;
		}
		console.log(JSON.stringify([name, shown(value)]));
	};
}
