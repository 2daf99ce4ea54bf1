/** Writes `docs/config.schema.json` from the schema in the code; run it after changing keys. */

import { writeFileSync } from 'node:fs'
import { configJsonSchema } from './config-json-schema.ts'

const path = new URL('../docs/config.schema.json', import.meta.url)
writeFileSync(path, `${JSON.stringify(configJsonSchema(), null, 2)}\n`)
