/** Hosts that are namespaces, for backends that reach them by a remote shell. */

import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import type { TestNetwork } from '../cluster/hosts.ts'

type Host = ReturnType<TestNetwork['addHost']>

/** A remote shell as `ssh`: a host, and words that make a line for its shell. */
export function writeRemoteShell(hosts: readonly Host[]): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-shell-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const cases = hosts.map(({ address, enter, index }) => {
    return `${address}) exec ${enter.join(' ')} unshare --uts sh -c "hostname h${index}; $line";;`
  })
  const file = join(folder, 'remote-shell')
  const script = ['host=$1', 'shift', 'line=$*', 'case "$host" in', ...cases, '*) exit 255;;']
  writeFileSync(file, `#!/bin/sh\n${script.join('\n')}\nesac\n`)
  chmodSync(file, 0o755)
  return file
}
