// Before anything is painted: the colours that were chosen here last. Without a choice, those of the system.
try {
  const chosen = localStorage.getItem("inquest-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage can be forbidden; then the system's colours stay.
}
