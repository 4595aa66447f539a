// @ts-check
// The way back from the provider. This step of our own page is what lets the browser send the
// session's cookie, which is SameSite=Strict. A tab that was opened for a proof reports and closes.

if (document.documentElement.dataset.again) {
  new BroadcastChannel("provisioner-signed-in").postMessage("");
  window.close();
} else {
  location.replace("/console/");
}
