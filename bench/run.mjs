// npm run bench [-- memory | redis | guards | idempotency]
const all = ['memory', 'redis', 'guards', 'idempotency'];
const chosen = process.argv.slice(2);
const unknown = chosen.find((name) => !all.includes(name));
if (unknown) {
  console.error(`There is no benchmark "${unknown}"; there are: ${all.join(', ')}.`);
  process.exit(2);
}
for (const name of chosen.length > 0 ? chosen : all) await import(`./${name}.mjs`);
