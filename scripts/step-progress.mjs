/** Shows what a step does while it runs. Plain JavaScript, as it runs on the system's Node. */

/** Users should see progress at least every two seconds. */
const intervalMs = 1500

/**
 * Prints the title immediately, then the progress and the elapsed time. A terminal shows it on one
 * line, any other output on a new line each time.
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

/** A wrapped line could not be replaced. Some terminals report no width. */
function widthOf({ columns }) {
  return Math.max(20, (columns || 80) - 1)
}
