/** The package's version, and those of Node and node-llama-cpp that it supports. */

/** The version of the package. A test checks that it equals `version` in package.json. */
export const version = '0.1.0'

/** The oldest supported version of Node. A test checks that it equals `engines` in package.json. */
export const oldestNode = '22.19'

/** Returns the error message if this version of Node is too old; otherwise `null`. */
export function nodeProblem(found: string): string | null {
  const [major = 0, minor = 0] = found.split('.').map(Number)
  const [oldestMajor = 0, oldestMinor = 0] = oldestNode.split('.').map(Number)
  const isNewEnough = major > oldestMajor || (major === oldestMajor && minor >= oldestMinor)
  if (isNewEnough) return null
  return (
    `tutti needs Node ${oldestNode} or newer, and this is Node ${found}: install one from ` +
    'https://nodejs.org, or for this project alone: npm install node@24, then npx node or npx tutti'
  )
}

/** The only supported version of node-llama-cpp, as in `peerDependencies`. */
export const llamaVersion = '3.21.1'
