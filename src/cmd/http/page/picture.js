// picture.js - what is drawn: the pool's memory, and curves.

// --- memory ---

// Where the pool's memory is, in bytes. What waits is lent, too; what is free on
// a node that is being emptied is nobody's.
function sharesOf(status) {
	const sum = (rows, key) => rows.reduce((all, row) => all + row[key], 0);
	const here = status.nodes.filter((node) => !isGone(node));
	const lent = sum(here, 'used');
	const waiting = Math.min(sum(status.sessions, 'waiting'), lent);
	const free = here.filter((node) => node.state === 'ok').reduce(
		(all, node) => all + Math.max(0, node.capacity - node.used), 0);

	return { lent, waiting, free, lost: sum(status.spaces, 'lost') };
}

// The parts of the picture, from left to right.
function partsOf(status, shares) {
	const parts = [];
	let left = shares.lent - shares.waiting;

	for (const space of [...status.spaces].sort((a, b) => b.used - a.used)) {
		const size = Math.min(space.used, left);

		if (size <= 0 || parts.length >= 24)
			continue;
		parts.push({ key: 'space ' + space.space, size,
			kind: parts.length % 2 ? 'lent odd' : 'lent' });
		left -= size;
	}
	parts.push({ key: 'other', size: left, kind: 'lent' });
	for (const kind of ['waiting', 'free', 'lost'])
		parts.push({ key: kind, size: shares[kind], kind });
	return parts;
}

// Deal out cells to parts by their sizes; what is there has one at least.
function dealCells(parts, cells) {
	const total = parts.reduce((all, part) => all + part.size, 0);
	let given = 0;

	for (const part of parts) {
		part.exact = total ? part.size / total * cells : 0;
		part.cells = part.size ? Math.max(1, Math.floor(part.exact)) : 0;
		given += part.cells;
	}
	const byRest = [...parts].filter((part) => part.size).sort((a, b) =>
		(b.exact - b.cells) - (a.exact - a.cells));
	for (let i = 0; given < cells && byRest.length; i++, given++)
		byRest[i % byRest.length].cells++;
	for (; given > cells; given--)
		parts.reduce((a, b) => b.cells > a.cells ? b : a).cells--;
}

function drawMemory(status) {
	const picture = $('picture');
	const width = picture.clientWidth;
	const pitch = 14;
	const columns = Math.max(1, Math.floor((width + 3) / pitch));
	const rows = width > 700 ? 7 : width > 480 ? 9 : 10;
	const shares = status ? sharesOf(status) : null;
	const parts = status ? partsOf(status, shares) : [];
	let cell = 0;

	if (!parts.some((part) => part.size))
		parts.push({ key: 'none', size: 1, kind: 'free' });
	dealCells(parts, columns * rows);
	setAttribute(picture, 'height', rows * pitch);
	const paths = keep(picture.querySelector('g'), parts.map(
		(part) => part.key), () => draw('path', {}));
	parts.forEach((part, i) => {
		let d = '';

		for (let end = cell + part.cells; cell < end; cell++)
			d += `M${Math.floor(cell / rows) * pitch + 1} ${
				cell % rows * pitch + 1}h9v9h-9z`;
		setAttribute(paths[i], 'd', d);
		setAttribute(paths[i], 'class', part.kind +
			(paths[i].classList.contains('on') ? ' on' : ''));
	});
	if (status)
		writeMemory(status, shares, columns * rows);
}

function writeMemory(status, shares, cells) {
	const total = shares.lent + shares.free + shares.lost;
	const lead = $('memory-lead');
	const legend = $('legend');
	const kinds = ['lent', 'waiting', 'free', 'lost'];
	const said = { lent: bytes(shares.lent), free: bytes(shares.free),
		waiting: bytes(shares.waiting), lost: bytes(shares.lost) };

	if (!lead.firstElementChild) {
		lead.textContent = '';
		lead.append(make('b'), make('span'));
	}
	setText(lead.firstElementChild, said.lent);
	setText(lead.lastElementChild, ` lent of ${bytes(shares.lent + shares.free)}`);
	if (!legend.children.length)
		for (const kind of kinds) {
			const row = make('div');
			const swatch = draw('svg', { 'aria-hidden': true });

			swatch.append(draw('rect', { class: kind, rx: 2, width: 11,
				height: 11 }));
			row.append(swatch, make('dt', '', kind), make('dd'));
			if (kind === 'waiting')
				row.title = 'freed, and not to be used again yet';
			legend.append(row);
		}
	kinds.forEach((kind, i) => setText(legend.children[i].lastChild, said[kind]));
	setClass(legend.children[3], 'some-lost', shares.lost > 0);
	setAttribute($('picture'), 'aria-label', `Memory: ${said.lent} lent, of which ${
		said.waiting} wait to be used again; ${said.free} free; ${said.lost
	} lost. A square is ${bytes(total / cells)}.`);
	setText($('memory-title').lastElementChild, total ?
		`a square is ${bytes(total / cells)}` : '');
}

// Light what belongs to a row of the spaces; null: all.
function light(row) {
	const key = row && row.closest('#spaces') ? 'space ' + row.dataset.key : null;
	let lit = false;

	for (const path of $('picture').querySelectorAll('path')) {
		const on = path.dataset.key === key && path.hasAttribute('d');

		setClass(path, 'on', on);
		lit = lit || on;
	}
	setClass($('picture'), 'lit', lit);
}

// --- traffic ---

// A curve of the last two minutes. A second without a figure is a gap.
class Curve {
	// scale: how high a value stands, of what it is proportional to.
	constructor(id, format, unit, scale) {
		this.scale = scale;
		this.format = format;
		this.unit = unit;
		this.points = [];
		this.figure = $(id);
		this.title = this.figure.textContent.trim();
		this.peak = make('span', 'peak');
		this.now = make('p', 'now');
		this.now.append(make('span', '', '–'), make('small'));
		this.area = draw('path', { class: 'spark-area' });
		this.line = draw('path', { class: 'spark-line' });
		this.picture = draw('svg', { viewBox: `0 0 ${POINTS - 1} 44`,
			preserveAspectRatio: 'none', role: 'img',
			'aria-label': this.title });
		this.picture.append(draw('path', { class: 'spark-base',
			d: `M0 44H${POINTS - 1}` }), this.area, this.line);
		this.figure.append(this.peak, this.now, this.picture);
	}

	// Add a figure; null: there is none. note: what else is to be said.
	add(value, note) {
		this.points.push(value);
		if (this.points.length > POINTS)
			this.points.shift();
		const most = Math.max(...this.points, 0);

		setClass(this.now, 'none', value === null);
		setText(this.now.firstChild, value === null ? 'none' :
			this.format(value));
		setText(this.now.lastChild, (value === null ? '' : this.unit) + note);
		setText(this.peak, most ? 'highest ' + this.format(most) : '');
		this.drawLine(most);
		setAttribute(this.picture, 'aria-label', `${this.title}: ${
			this.now.textContent}. ${this.peak.textContent}`);
	}

	drawLine(most) {
		const start = POINTS - this.points.length;
		let line = '', area = '', open = null;

		this.points.concat([null]).forEach((value, i) => {
			const x = start + i;

			if (value === null) {
				if (open !== null)
					area += `L${x - 1} 44L${open} 44z`;
				open = null;
				return;
			}
			const y = (43 - (most ? this.scale(value) / this.scale(most) : 0) * 41).toFixed(1);

			line += (open === null ? `M${x - 0.01} ${y}` : '') + `L${x} ${y}`;
			area += (open === null ? 'M' : 'L') + `${x} ${y}`;
			open = open === null ? x : open;
		});
		setAttribute(this.line, 'd', line);
		setAttribute(this.area, 'd', area);
	}
}

// What all sessions did between two pictures of one broker.
function trafficOf(now, before) {
	const seconds = (now.uptime_ns - before.uptime_ns) / 1e9;
	const fabrics = Object.keys(now.counters.operations).map((name) => [name,
		sumOf(now.counters.operations[name]) -
		sumOf(before.counters.operations[name])]).filter(([, done]) => done > 0);
	const total = fabrics.reduce((all, [, done]) => all + done, 0);
	const rise = (name) => Math.max(0, now.counters[name] -
		before.counters[name]);
	const gets = rise('hits') + rise('misses');

	return { operations: total / seconds,
		bytes: (rise('read_bytes') + rise('written_bytes')) / seconds,
		latency: percentile(now.counters.latencies.map((value, i) =>
			value - before.counters.latencies[i]),
		now.counters.latency_bounds_ns, 0.99),
		fabrics: fabrics.sort((a, b) => b[1] - a[1]).map(([name, done]) =>
			`${name} ${Math.round(100 * done / total)} %`).join(', '),
		hits: gets ? `${Math.round(100 * rise('hits') / gets)} % of gets hit` :
			'' };
}

const sumOf = (kinds) => Object.values(kinds).reduce((all, one) => all + one, 0);

// The bound that this part of all calls did not exceed; null: there were none.
// Of the last bucket there is only the bound below it.
function percentile(buckets, bounds, part) {
	const all = buckets.reduce((sum, one) => sum + Math.max(0, one), 0);
	let left = all * part;

	if (!all)
		return null;
	for (let i = 0; i < bounds.length; i++) {
		left -= Math.max(0, buckets[i]);
		if (left <= 0)
			return bounds[i];
	}
	return bounds[bounds.length - 1];
}

const curves = {
	operations: new Curve('operations', rate, ' per second', (value) => value),
	bytes: new Curve('bytes', bytes, ' per second', (value) => value),
	// From 100 ns to 100 ms: by its logarithm, or one slow call hides all.
	latency: new Curve('latency', latency, ' or less', (value) =>
		Math.log10(Math.max(value, 101) / 100)),
};

// Add a second to the curves. A broker that was started anew begins at 0 again,
// and the first picture has none before it.
function drawTraffic(now, before) {
	if (!before || now.broker_epoch !== before.broker_epoch ||
	    now.uptime_ns <= before.uptime_ns)
		return;
	const traffic = trafficOf(now, before);
	const note = (text) => text ? ' · ' + text : '';

	curves.operations.add(traffic.operations, note(traffic.fabrics));
	curves.bytes.add(traffic.bytes, note(traffic.hits));
	curves.latency.add(traffic.latency, '');
}
