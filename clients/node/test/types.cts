// The same types for `require`.
import tenure = require('tenure');

export async function usage(): Promise<void> {
  const hold: tenure.Hold = await tenure.lock('deploy');
  await hold.release();
}
