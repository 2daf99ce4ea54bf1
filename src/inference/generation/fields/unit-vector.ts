/** Scales embeddings to the length 1, so that their dot product is their similarity. */

/** A vector of zeros stays as it is. */
export function toUnitVector(vector: ArrayLike<number>): Float32Array {
  let sum = 0
  for (let at = 0; at < vector.length; at++) sum += (vector[at] ?? 0) ** 2
  const length = Math.sqrt(sum)
  return Float32Array.from(vector, (value) => (length === 0 ? value : value / length))
}
