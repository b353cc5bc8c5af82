// Runs before anything is painted. "auto" follows the system.
(() => {
  const root = document.documentElement;
  const show = (theme) => {
    root.dataset.theme = theme;
  };
  let stored = null;
  try {
    stored = localStorage.getItem("zkr-theme");
  } catch {
    // The browser keeps nothing.
  }
  show(stored === "dark" || stored === "light" ? stored : "auto");

  window.toggleTheme = () => {
    const dark = getComputedStyle(root).colorScheme === "dark" ||
      (root.dataset.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
    show(dark ? "light" : "dark");
    try {
      localStorage.setItem("zkr-theme", root.dataset.theme);
    } catch {
      // It lasts as long as the page.
    }
  };
})();
