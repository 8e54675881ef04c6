// base.js - the live page of a pool: pictures that /events sends once a second.
// The scripts of this folder become one, in the order of src/cmd/meson.build.
//
// (1) What comes from the pool becomes text and numbers only: no markup is made
//     of it (the content policy refuses that, too).
// (2) A picture changes what is different, and nothing else: a selection, the
//     focus and a reader's place stay.
// (3) What is shown is at most three seconds old, or the page says how old.
// (4) No list is longer than a table's `rows` unless somebody asks for all.
'use strict';

const EVENTS_MAX = 40;
const POINTS = 120; // of a curve: two minutes
const STALE_MS = 2500;
const SILENT_MS = 10000;
const SVG = 'http://www.w3.org/2000/svg';
const $ = (id) => document.getElementById(id);

// --- words and numbers ---

const units = (value, step, names) => {
	let i = 0;

	while (value >= step && i < names.length - 1) {
		value /= step;
		i++;
	}
	return [value < 9.95 && i ? value.toFixed(1).replace(/\.0$/, '') :
		Math.round(value).toString(), names[i]];
};
const bytes = (value) => units(value, 1024,
	['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']).join(' ');
const count = (value) => value.toLocaleString('en-GB');
const many = (value, one, more) => count(value) + ' ' +
	(value === 1 ? one : more || one + 's');
const rate = (value) => units(value, 1000, ['', 'k', 'M', 'G']).join(' ').trim();

function age(ns) {
	const seconds = ns / 1e9;

	if (seconds < 0.0995)
		return Math.round(ns / 1e6) + ' ms';
	if (seconds < 9.95)
		return seconds.toFixed(1) + ' s';
	if (seconds < 120)
		return Math.round(seconds) + ' s';
	if (seconds < 7200)
		return Math.round(seconds / 60) + ' min';
	if (seconds < 172800)
		return Math.round(seconds / 3600) + ' h';
	return Math.round(seconds / 86400) + ' d';
}

function latency(ns) {
	if (ns < 1000)
		return Math.round(ns) + ' ns';
	return units(ns / 1000, 1000, ['µs', 'ms', 's']).join(' ');
}

const hex = (id) => id.toString(16).padStart(8, '0');

// --- elements ---

function make(name, className, text) {
	const element = document.createElement(name);

	if (className)
		element.className = className;
	if (text !== undefined)
		element.textContent = text;
	return element;
}

function draw(name, attributes) {
	const element = document.createElementNS(SVG, name);

	for (const [key, value] of Object.entries(attributes))
		element.setAttribute(key, value);
	return element;
}

// Write only what differs: (2).
function setText(element, text) {
	if (element.textContent !== text)
		element.textContent = text;
}

function setClass(element, name, on) {
	if (element.classList.contains(name) !== on)
		element.classList.toggle(name, on);
}

function setAttribute(element, name, value) {
	if (element.getAttribute(name) !== String(value))
		element.setAttribute(name, value);
}

// Make the children of a list those of the keys, in that order.
function keep(list, keys, create) {
	const there = new Map();
	let at;

	for (const child of [...list.children])
		there.set(child.dataset.key, child);
	for (const key of keys) {
		let child = there.get(key);

		if (!child) {
			child = create(key);
			child.dataset.key = key;
		}
		there.delete(key);
		at = at ? at.nextSibling : list.firstChild;
		if (child !== at)
			list.insertBefore(child, at);
		at = child;
	}
	for (const child of there.values())
		child.remove();
	return list.children;
}

// Terms and what they are, in a <dl>.
function setTerms(list, terms) {
	const rows = keep(list, terms.map(([term]) => term), (term) => {
		const row = make('div');

		row.append(make('dt', '', term), make('dd'));
		return row;
	});

	terms.forEach(([, text], i) => setText(rows[i].lastChild, text));
}
