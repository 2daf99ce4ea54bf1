/** Tells people what a step does while it runs. Plain JavaScript: it runs on the system's Node. */

/** Nobody waits longer than two seconds for a word. */
const intervalMs = 1500

/**
 * Says at once what is done, and then how far it is and how long it has taken. A terminal has one
 * line for it, any other output a new line each time.
 */
export async function during(work, title, howFar = () => '', output = process.stderr) {
  const since = performance.now()
  output.write(`setup: ${title}\n`)
  const timer = setInterval(() => {
    const seconds = Math.round((performance.now() - since) / 1000)
    const parts = [`setup: ${title}`, howFar(), `${seconds} s`]
    const line = parts.filter((part) => part !== '').join(', ')
    output.write(output.isTTY ? `\x1b[1A\x1b[2K${line.slice(0, widthOf(output))}\n` : `${line}\n`)
  }, intervalMs)
  try {
    return await work
  } finally {
    clearInterval(timer)
  }
}

/** A line that is wrapped could not be replaced. Some terminals have no width. */
function widthOf({ columns }) {
  return Math.max(20, (columns || 80) - 1)
}
