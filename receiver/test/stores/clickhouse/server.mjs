// SPDX-License-Identifier: Apache-2.0

// Serves ClickHouse's HTTP interface with the engine of chdb, as far as the ClickHouse exporter and the tests use it: one
// query a request, inserts and answers in the format Native (https://clickhouse.com/docs/interfaces/http).
//
//	node server.mjs DIRECTORY PORT: keeps its tables below the directory
import {createServer} from 'node:http';
import {createRequire} from 'node:module';
import {mkdirSync, rmSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';

const [, , directory, port] = process.argv;
const {Session} = createRequire(join(process.cwd(), 'package.json'))('chdb');
mkdirSync(directory, {recursive: true});
const session = new Session(join(directory, 'data'));

let inserts = 0;
let previous = Promise.resolve(); // the engine runs one query at a time

async function insert(into, data) {
	const file = join(directory, `${inserts++}.native`);
	writeFileSync(file, data);
	try {
		await session.queryAsync(`${into} SELECT * FROM file('${file}', 'Native')`);
	} finally {
		rmSync(file);
	}
}

// native encodes an answer as the exporter's client asks for it: a block with its info, and a byte for the serialization of each
// column. chdb's own Native has neither, as it is not asked by a client. The client reads strings and UInt32 only.
function native({meta, data}) {
	const parts = [];
	const varint = n => {
		const bytes = [];
		for (; n > 127; n = Math.floor(n / 128)) bytes.push(n % 128 + 128);
		parts.push(Buffer.from([...bytes, n]));
	};
	const string = s => {
		const bytes = Buffer.from(s);
		varint(bytes.length);
		parts.push(bytes);
	};
	if (data.length === 0) return Buffer.alloc(0);
	parts.push(Buffer.from([1, 0, 2, 255, 255, 255, 255, 0])); // no overflows, no bucket
	varint(meta.length);
	varint(data.length);
	meta.forEach(({name, type}, column) => {
		string(name);
		string(type);
		parts.push(Buffer.from([0])); // the default serialization
		for (const row of data) {
			if (type === 'UInt32') {
				const bytes = Buffer.alloc(4);
				bytes.writeUInt32LE(row[column]);
				parts.push(bytes);
			} else {
				string(row[column]);
			}
		}
	});
	return Buffer.concat(parts);
}

async function answer(parameters, body) {
	const into = /^\s*(INSERT\s.*)\sFORMAT\s+Native\s*$/is.exec(parameters.get('query') ?? '');
	if (into) {
		await insert(into[1], body);
		return '';
	}
	const format = parameters.get('default_format');
	const result = await session.queryAsync(body.toString(), {format: format === 'Native' ? 'JSONCompact' : format ?? 'TabSeparated'});
	const bytes = Buffer.from(result.bytes());
	return format === 'Native' && bytes.length > 0 ? native(JSON.parse(bytes)) : bytes;
}

const server = createServer((request, response) => {
	const chunks = [];
	request.on('data', chunk => chunks.push(chunk));
	request.on('end', () => {
		previous = previous.then(async () => {
			try {
				const {searchParams} = new URL(request.url, 'http://localhost');
				response.end(request.method === 'GET' ? 'Ok.\n' : await answer(searchParams, Buffer.concat(chunks)));
			} catch (error) {
				response.writeHead(500).end(error.message);
			}
		});
	});
});
server.listen(Number(port), '127.0.0.1');
