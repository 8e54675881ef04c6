// page.js - the whole page: what it says, whom it asks, what keys do.

// --- the whole ---

const page = { status: null, seenAt: 0, uptime: -1, paused: false, needles: [],
	pictures: 0,
	source: null, askedAt: 0, saidAt: 0 };

// True if each word of the filter is in one of the texts.
function matches(texts) {
	const hay = texts.join('\n').toLowerCase();

	return page.needles.every((needle) => hay.includes(needle));
}

// True if the broker's last word on it is that too few nodes follow it.
function isAlone(status) {
	const said = status.events.filter((event) =>
		/^(enough|too few) nodes follow this broker/.test(event.text)).pop();

	return Boolean(said) && said.text.startsWith('too few');
}

// What is to be said of the pool, the worst first.
function verdictOf(status) {
	const dead = status.nodes.filter((node) => node.state === 'dead').length;
	const silent = status.nodes.filter(isSilent).length;
	const lost = sharesOf(status).lost;
	const here = status.nodes.filter((node) => !isGone(node)).length;
	const short = status.spaces.reduce((all, row) => all + row.degraded, 0);
	const pins = status.sessions.filter((row) => row.holds_ns > 5e9).length;

	if (isAlone(status))
		return ['bad', 'Too few nodes'];
	if (dead)
		return ['bad', `${many(dead, 'node')} dead` + (lost ?
			`, ${bytes(lost)} lost` : '')];
	if (lost)
		return ['bad', `${bytes(lost)} lost`];
	if (silent)
		return ['bad', `${many(silent, 'node')} silent`];
	if (status.stuck)
		return ['bad', `${many(status.stuck, 'recovery', 'recoveries')} stuck`];
	if (!here)
		return ['warn', 'No memory: no node is here'];
	if (short)
		return ['warn', `${many(short, 'extent')} short of copies`];
	if (pins)
		return ['warn', `${many(pins, 'session')} pin freed memory`];
	return ['', 'All is well'];
}

function setHealth(className, text) {
	const health = $('health');

	setAttribute(health, 'class', className);
	setText(health.lastElementChild, text);
	document.title = className || document.body.dataset.state !== 'live' ?
		`${text} – Reef` : 'Reef';
}

function setState(state, strong, text, calm) {
	const notice = $('notice');

	document.body.dataset.state = state;
	notice.hidden = !strong;
	setClass(notice, 'calm', Boolean(calm));
	setText(notice.firstElementChild, strong || '');
	setText(notice.lastElementChild, text || '');
}

function redraw() {
	const { status } = page;

	drawMemory(status);
	if (!status)
		return;
	setTerms($('about'), [['pool', status.pool],
		['broker up', age(status.uptime_ns)],
		['epoch', count(status.pool_epoch)],
		['asked over', status.fabric]]);
	for (const [name, table] of Object.entries(tables))
		table.show(name === 'doors' ? status.sessions.filter(isDoor) :
			status[name], status);
	showEvents(status.events);
}

// Show a picture of the pool.
function take(status) {
	if (status.uptime_ns === page.uptime)
		return; // an old one
	page.uptime = status.uptime_ns;
	page.seenAt = performance.now();
	if (page.paused)
		return;
	drawTraffic(status, page.status);
	page.status = status;
	if (isAlone(status))
		setState('live', 'Too few nodes follow this broker: it changes nothing.',
			'Start those again that are silent, or give them up: reef node ' +
			'remove NAME.');
	else
		setState('live');
	setHealth(...verdictOf(status));
	redraw();
	document.body.dataset.pictures = ++page.pictures;
}

// Say that there is no new picture, and why.
function say(strong, text) {
	if (page.paused)
		return;
	setState('away', strong, text);
	setHealth('bad', page.status ? 'Not up to date' : 'No answer');
}

function sayStale() {
	const ms = performance.now() - page.seenAt;

	say('No answer from this server.', page.status ?
		`What you see is ${Math.round(ms / 1000)} s old. It is asked again ` +
		'every second.' : 'It is asked again every second.');
}

function sayNode() {
	setState('node', 'This server is a node.', 'The page of a pool is at its ' +
		'broker; here are /metrics, /health and /ready.', true);
	setHealth('', 'Node');
}

// --- asking ---

// Ask for one picture, or for why there is none.
async function ask() {
	try {
		const answer = await fetch('/api/v1/status', { cache: 'no-store',
			signal: AbortSignal.timeout(STALE_MS) });

		if (answer.ok)
			take(await answer.json());
		else if (answer.status === 404)
			sayNode();
		else
			say('The broker does not answer.', (await answer.text()).trim());
	} catch (error) {
		sayStale();
	}
}

// Take pictures as they come. A stream that is refused (there are too many, or
// this is a node) is asked for again, with one picture meanwhile; one that
// breaks off the browser opens again itself.
function watch() {
	const source = new EventSource('/events');

	page.source = source;
	page.askedAt = performance.now();
	source.addEventListener('status', (event) => take(JSON.parse(event.data)));
	source.addEventListener('trouble', (event) => {
		page.saidAt = performance.now();
		say('The broker does not answer.', JSON.parse(event.data).text);
	});
	source.addEventListener('error', async () => {
		if (source.readyState !== EventSource.CLOSED)
			return;
		await ask();
		if (document.body.dataset.state !== 'node')
			setTimeout(watch, 1000);
	});
}

// Say so when nothing comes. A stream that is silent for long, although it is
// open or about to be, is given up for another one.
function checkAge() {
	const now = performance.now();

	if (now - page.seenAt <= STALE_MS || document.body.dataset.state === 'node')
		return;
	if (!page.saidAt || now - page.saidAt > STALE_MS)
		sayStale();
	if (page.source.readyState !== EventSource.CLOSED &&
	    now - Math.max(page.askedAt, page.saidAt, page.seenAt) > SILENT_MS) {
		page.source.close();
		watch();
	}
}

// --- keys ---

const sections = ['memory', 'nodes', 'spaces', 'doors', 'events', 'sessions'];
const themes = ['', 'light', 'dark'];

function setPaused(paused) {
	page.paused = paused;
	$('pause').setAttribute('aria-pressed', paused);
	setText($('pause'), paused ? 'Go on' : 'Pause');
	if (paused)
		setState('live', 'Stopped.', 'The page stands still; the pool does not. ' +
			'Press p to go on.', true);
	else
		setState(page.status ? 'live' : 'loading');
}

function setTheme(theme) {
	document.documentElement.dataset.theme = theme;
	setText($('theme'), { light: 'Light', dark: 'Dark' }[theme] || 'Auto');
	try {
		localStorage.setItem('theme', theme);
	} catch (error) {
		// Without storage it lasts as long as the page.
	}
}

function nextTheme() {
	const now = document.documentElement.dataset.theme || '';

	setTheme(themes[(themes.indexOf(now) + 1) % themes.length]);
}

function goTo(name) {
	const heading = $(name + '-title');

	heading.scrollIntoView({ block: 'start' });
	(name === 'memory' || name === 'events' ? heading :
		$(name).querySelector('tbody tr') || heading).focus(
		{ preventScroll: true });
}

function step(by) {
	const row = document.activeElement.closest('tbody tr');
	const next = row ? (by > 0 ? row.nextSibling : row.previousSibling) :
		document.querySelector('tbody tr');

	if (!next)
		return;
	for (const other of next.parentNode.children)
		other.tabIndex = other === next ? 0 : -1;
	next.focus();
}

function setFilter(text) {
	page.needles = text.toLowerCase().split(/\s+/).filter(Boolean);
	redraw();
}

function press(event) {
	const inField = event.target.matches('input');
	const actions = { '/': () => $('filter').focus(), p: () => setPaused(
		!page.paused), t: nextTheme, '?': () => $('keys').showModal(),
	j: () => step(1), k: () => step(-1), ArrowDown: () => step(1),
	ArrowUp: () => step(-1) };

	if (event.ctrlKey || event.altKey || event.metaKey || $('keys').open)
		return;
	if (inField) {
		if (event.key === 'Escape') {
			event.target.value = '';
			setFilter('');
			event.target.blur();
		}
		return;
	}
	if (event.key.startsWith('Arrow') && !event.target.closest('tbody tr'))
		return;
	const action = actions[event.key] || (sections[event.key - 1] && (() =>
		goTo(sections[event.key - 1])));

	if (!action)
		return;
	event.preventDefault();
	action();
}

function begin() {
	$('memory-title').append(make('small'));
	try {
		setTheme(themes.includes(localStorage.getItem('theme')) ?
			localStorage.getItem('theme') : '');
	} catch (error) {
		setTheme('');
	}
	document.addEventListener('keydown', press);
	$('pause').addEventListener('click', () => setPaused(!page.paused));
	$('theme').addEventListener('click', nextTheme);
	$('help').addEventListener('click', () => $('keys').showModal());
	$('filter').addEventListener('input', () => setFilter($('filter').value));
	for (const name of ['mouseover', 'focusin'])
		document.addEventListener(name, (event) => light(
			event.target.closest('tbody tr')));
	new ResizeObserver(() => drawMemory(page.status)).observe($('picture'));
	page.seenAt = performance.now();
	setInterval(checkAge, 1000);
	watch();
}

begin();
