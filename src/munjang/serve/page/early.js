// Runs before the first paint, so that neither the wrong colours nor the wrong language flash up.
// Not a module: modules run after the page has been read.
(function () {
  let theme = null;
  let language = null;
  try {
    theme = localStorage.getItem("munjang.theme");
    language = localStorage.getItem("munjang.language");
  } catch {
    // A browser that keeps nothing: what it prefers decides.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  if (language !== "ko" && language !== "en") {
    const wanted = (navigator.languages ?? [navigator.language]).map((tag) => tag.slice(0, 2).toLowerCase());
    language = wanted.find((tag) => tag === "ko" || tag === "en") ?? "en";
  }
  document.documentElement.lang = language;
})();
