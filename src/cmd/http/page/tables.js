// tables.js - nodes, spaces, sessions, doors, events.

// --- tables ---

// One of: a text; {text, className, dot, part, title}.
function fillCell(cell, what) {
	const { text, dot, part, title } = what;

	if (part !== undefined && !cell.firstElementChild) {
		const bar = draw('svg', { 'aria-hidden': true, viewBox: '0 0 100 7',
			preserveAspectRatio: 'none' });
		const use = make('span', 'use');

		bar.append(draw('rect', { height: 7 }));
		use.append(bar, make('span'));
		cell.append(use);
	} else if (dot && !cell.firstElementChild) {
		cell.append(make('i'), make('span'));
	} else if (!cell.firstElementChild) {
		cell.append(make('span'));
	}
	const first = cell.firstElementChild;

	if (part !== undefined) {
		setAttribute(first.firstChild.firstChild, 'width',
			(100 * Math.min(1, part)).toFixed(1));
		setClass(first, 'full', part >= 0.9);
		setText(first.lastChild, text);
	} else {
		if (dot)
			setAttribute(first, 'class', 'dot ' + dot);
		setText(cell.lastElementChild, text);
	}
	if (title !== undefined)
		setAttribute(cell, 'title', title);
	setClass(cell, 'late', Boolean(what.late));
}

class Table {
	// columns: {title, className, cell(row), by(row)}; by: what it is
	// sorted by.
	constructor(id, title, options) {
		Object.assign(this, options);
		this.section = $(id);
		this.shown = this.rows;
		this.order = 1;
		this.sorted = null;
		this.heading = make('h2', '', title);
		this.heading.id = id + '-title';
		this.heading.tabIndex = -1;
		this.note = make('small');
		this.heading.append(this.note);
		this.table = make('table');
		this.table.setAttribute('aria-labelledby', this.heading.id);
		this.body = make('tbody');
		this.table.append(this.makeHead(), this.body);
		this.empty = make('p', 'empty', 'Asking the broker');
		this.more = make('button', 'more');
		this.more.type = 'button';
		this.more.addEventListener('click', () => {
			this.shown = this.shown === Infinity ? this.rows : Infinity;
			redraw();
		});
		const scroll = make('div', 'scroll');

		scroll.append(this.table);
		this.section.append(this.heading, this.empty, scroll, this.more);
		this.table.hidden = this.more.hidden = true;
	}

	makeHead() {
		const head = make('thead');
		const row = make('tr');

		this.columns.forEach((column) => {
			const cell = make('th', column.className || '');
			const button = make('button', '', column.title);

			cell.scope = 'col';
			button.type = 'button';
			button.addEventListener('click', () => this.sortBy(column));
			cell.append(button);
			row.append(cell);
			column.head = cell;
		});
		head.append(row);
		return head;
	}

	sortBy(column) {
		const first = typeof column.by(this.example || {}) === 'number' ? -1 : 1;

		this.order = this.sorted === column ? -this.order : first;
		this.sorted = column;
		for (const other of this.columns)
			other.head.removeAttribute('aria-sort');
		column.head.setAttribute('aria-sort',
			this.order > 0 ? 'ascending' : 'descending');
		redraw();
	}

	arrange(rows) {
		const by = this.sorted ? this.sorted.by : this.rank;
		const order = this.sorted ? this.order : 1;

		if (!by)
			return rows;
		return rows.map((row, i) => [by(row), i, row]).sort((a, b) =>
			(a[0] < b[0] ? -order : a[0] > b[0] ? order : 0) ||
			a[1] - b[1]).map((entry) => entry[2]);
	}

	show(all, status) {
		const found = all.filter((row) => matches(this.words(row)));
		const rows = this.arrange(found).slice(0, this.shown);
		const hidden = found.length - rows.length;

		this.example = all[0];
		const lines = keep(this.body, rows.map((row) => String(this.key(row))),
			() => this.makeRow());
		rows.forEach((row, i) => this.fillRow(lines[i], row));
		this.rove();
		setText(this.note, (found.length < all.length ?
			`${count(found.length)} of ` : '') + this.summary(all, status));
		this.table.hidden = !rows.length;
		this.empty.hidden = rows.length > 0;
		setText(this.empty, all.length ? 'No row has what the filter asks for.' :
			this.none);
		this.more.hidden = found.length <= this.rows;
		setText(this.more, hidden ? `Show ${count(hidden)} more` :
			`Show the first ${this.rows}`);
	}

	makeRow() {
		const line = make('tr');

		line.tabIndex = -1;
		for (const column of this.columns)
			line.append(make('td', column.className || ''));
		return line;
	}

	fillRow(line, row) {
		const verdict = this.judge(row);

		setClass(line, 'bad', verdict === 'bad');
		setClass(line, 'warn', verdict === 'warn');
		this.columns.forEach((column, i) => {
			const what = column.cell(row, verdict);

			fillCell(line.children[i], typeof what === 'object' ? what :
				{ text: String(what) });
		});
	}

	// One row of each table can be reached by Tab, the others from it.
	rove() {
		const lines = [...this.body.children];

		if (lines.length && !lines.some((line) => line.tabIndex === 0))
			lines[0].tabIndex = 0;
	}
}

// --- what the tables show ---

const isGone = (node) => node.state === 'dead' || node.state === 'expected' ||
	node.state === 'unknown';
// A node that the broker counts among the living, and has no link to or has not
// heard for long: a broker without followers enough cannot even say that it is
// dead.
const isSilent = (node) => (node.state === 'ok' || node.state === 'draining') &&
	(!node.linked || node.heard_ns > 5e9);
const nodeState = (node) => isSilent(node) ? 'silent' : node.state;
const nodeVerdicts = { ok: 'ok', dead: 'bad', silent: 'bad', unknown: 'bad' };
const isDoor = (session) => session.name === 'redis';
const stateOf = (session) => session.state === 'alive' && !session.fabric ?
	'away' : session.state;

const hitsOf = (session) => session.hits + session.misses ?
	session.hits / (session.hits + session.misses) : -1;

const tables = {
	nodes: new Table('nodes', 'Nodes', {
		rows: 40,
		key: (row) => row.node,
		words: (row) => [row.name, nodeState(row), row.addresses],
		judge: (row) => nodeVerdicts[nodeState(row)] || 'warn',
		rank: (row) => (nodeVerdicts[nodeState(row)] === 'bad' ? 0 : 1) * 1e9 +
			row.node,
		none: 'No node lends memory yet. "reef node add NAME FILE" makes a ' +
			'key for one, and "reef node --node-key FILE" runs it.',
		summary: (rows) => {
			const dead = rows.filter((row) => row.state === 'dead').length;
			const silent = rows.filter(isSilent).length;

			return many(rows.length, 'node') + (dead ? `, ${count(dead)} dead` :
				'') + (silent ? `, ${count(silent)} silent` : '');
		},
		columns: [
			{ title: 'node', className: 'name', by: (row) => row.name,
				cell: (row, verdict) => ({ text: row.name, dot: verdict,
					title: row.name }) },
			{ title: 'state', className: 'state', by: nodeState, cell: nodeState },
			{ title: 'lent', by: (row) => row.used / (row.capacity || 1),
				cell: (row) => ({ part: row.used / (row.capacity || 1),
					text: `${bytes(row.used)} of ${bytes(row.capacity)}` }) },
			{ title: 'extents', className: 'num wide', by: (row) => row.extents,
				cell: (row) => count(row.extents) },
			{ title: 'pulse', className: 'num', by: (row) => row.heard_ns,
				cell: (row) => isGone(row) ? '–' : { text: age(row.heard_ns),
					late: isSilent(row) } },
			{ title: 'fabrics', by: (row) => fabricsOf(row),
				cell: (row) => fabricsOf(row) || '–' },
			{ title: 'addresses', className: 'soft mono wide',
				by: (row) => row.addresses,
				cell: (row) => ({ text: row.addresses || '–',
					title: row.addresses }) },
		],
	}),
	spaces: new Table('spaces', 'Spaces', {
		rows: 20,
		key: (row) => row.space,
		words: (row) => [row.name, row.kind, row.keeping],
		judge: (row) => row.lost ? 'bad' : row.degraded ? 'warn' : 'ok',
		rank: (row) => (row.lost ? -1 : 0) * 1e18 - row.used,
		none: 'No space yet. "reef space create NAME" makes one.',
		summary: (rows) => many(rows.length, 'space'),
		columns: [
			{ title: 'space', className: 'name', by: (row) => row.name,
				cell: (row) => ({ text: row.name || 'no. ' + row.space,
					title: row.name }) },
			{ title: 'kind', className: 'soft wide', by: (row) => row.kind,
				cell: (row) => row.kind + (row.keeping === 'kept' ? '' :
					', ' + row.keeping) },
			{ title: 'used', by: (row) => row.used,
				cell: (row) => row.quota ? { part: row.used / row.quota,
					text: `${bytes(row.used)} of ${bytes(row.quota)}` } :
					bytes(row.used) },
			{ title: 'copies', className: 'num', by: (row) => row.copies_had,
				cell: (row) => row.degraded ? { text: `${row.copies_had} of ${
					row.copies}`, late: true } : String(row.copies) },
			{ title: 'lost', className: 'num', by: (row) => row.lost,
				cell: (row) => row.lost ? bytes(row.lost) : '–' },
		],
	}),
	sessions: new Table('sessions', 'Sessions', {
		rows: 50,
		key: (row) => row.session,
		words: (row) => [row.name, row.state, row.fabric, hex(row.session),
			String(row.pid), 'user ' + row.user],
		judge: (row) => row.state === 'fenced' || row.state === 'expired' ? 'bad' :
			stateOf(row) === 'away' || row.holds_ns ? 'warn' : 'ok',
		rank: (row) => -row.holds_ns,
		none: 'No program uses the pool at the moment.',
		summary: (rows) => {
			const holding = rows.filter((row) => row.holds_ns).length;

			return many(rows.length, 'session') + (holding ?
				`, ${count(holding)} pinning freed memory` : '');
		},
		columns: [
			{ title: 'program', className: 'name', by: (row) => row.name,
				cell: (row, verdict) => ({ text: row.name || '–', dot: verdict,
					title: row.name }) },
			{ title: 'session', className: 'mono soft wide',
				by: (row) => row.session, cell: (row) => hex(row.session) },
			{ title: 'state', className: 'state', by: stateOf, cell: stateOf },
			{ title: 'fabric', by: (row) => row.fabric,
				cell: (row) => row.fabric || '–' },
			{ title: 'operations', className: 'num wide',
				by: (row) => row.operations, cell: (row) => rate(row.operations) },
			{ title: 'bytes', className: 'num wide', by: (row) => row.bytes,
				cell: (row) => bytes(row.bytes) },
			{ title: 'hits', className: 'num wide', by: hitsOf,
				cell: (row) => hitsOf(row) < 0 ? '–' :
					Math.round(100 * hitsOf(row)) + ' %' },
			{ title: 'p99', className: 'num wide', by: (row) => row.p99_ns,
				cell: (row) => row.p99_ns ? latency(row.p99_ns) : '–' },
			{ title: 'pid', className: 'num wide', by: (row) => row.pid,
				cell: (row) => row.pid || '–' },
			{ title: 'user', className: 'num wide', by: (row) => row.user,
				cell: (row) => row.user },
			{ title: 'renewed', className: 'num', by: (row) => row.renewed_ns,
				cell: (row) => age(row.renewed_ns) },
			{ title: 'pins since', className: 'num', by: (row) => row.holds_ns,
				cell: (row) => row.holds_ns ? { text: age(row.holds_ns),
					late: true } : '–' },
			{ title: 'waiting', className: 'num', by: (row) => row.waiting,
				cell: (row) => row.waiting ? bytes(row.waiting) : '–' },
		],
	}),
	doors: new Table('doors', 'Doors', {
		rows: 10,
		key: (row) => row.session,
		words: (row) => [row.name, row.state],
		judge: (row) => stateOf(row) === 'alive' ? 'ok' : 'bad',
		none: 'No door is open. "reef redis" opens one for clients of Redis.',
		summary: (rows) => many(rows.length, 'door'),
		columns: [
			{ title: 'door', className: 'name', by: (row) => row.name,
				cell: (row, verdict) => ({ text: row.name, dot: verdict }) },
			{ title: 'state', className: 'state', by: stateOf, cell: stateOf },
			{ title: 'fabric', by: (row) => row.fabric,
				cell: (row) => row.fabric || '–' },
			{ title: 'pid', className: 'num', by: (row) => row.pid,
				cell: (row) => row.pid || '–' },
			{ title: 'renewed', className: 'num', by: (row) => row.renewed_ns,
				cell: (row) => age(row.renewed_ns) },
		],
	}),
};

// The fabrics that a node can be reached by.
function fabricsOf(node) {
	return [...new Set(node.addresses.split(' ').filter(Boolean).map(
		(address) => address.split(':')[0]))].join(', ');
}

// --- events ---

const isBad = (text) => /\b(is dead|lost|fenced|stuck|failed|refused|too few|has one copy)\b/
	.test(text);

const log = {
	heading: make('h2', '', 'Events'),
	note: make('small'),
	list: make('ol', 'log'),
	empty: make('p', 'empty', 'Asking the broker'),
};
log.heading.id = 'events-title';
log.heading.tabIndex = -1;
log.heading.append(log.note);
log.list.tabIndex = 0; // it scrolls by keys, too
log.list.setAttribute('aria-labelledby', 'events-title');
$('events').append(log.heading, log.empty, log.list);

function showEvents(events) {
	const found = events.filter((event) => matches([event.text]));
	const newest = found.slice(-EVENTS_MAX).reverse();
	const lines = keep(log.list, newest.map((event) => String(event.event)),
		() => {
			const line = make('li');

			line.append(make('time'), make('span'));
			return line;
		});

	newest.forEach((event, i) => {
		setText(lines[i].firstChild, age(event.age_ns));
		setText(lines[i].lastChild, event.text);
		setClass(lines[i], 'bad', isBad(event.text));
	});
	log.empty.hidden = newest.length > 0;
	setText(log.empty, events.length ? 'No event has what the filter asks for.' :
		'Nothing has happened yet.');
	setText(log.note, found.length > newest.length ?
		`the newest ${EVENTS_MAX} of ${count(found.length)}` : '');
}
