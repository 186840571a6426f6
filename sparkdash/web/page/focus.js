"use strict";
/* Give the keyboard to the terminal as soon as it draws, so that no click is needed first. */
new MutationObserver((_changes, observer) => {
  const keyboard = document.querySelector(".xterm-helper-textarea");
  if (!keyboard || !document.body.classList.contains("-first-byte")) return;
  keyboard.focus();
  observer.disconnect();
}).observe(document.body, { attributes: true, childList: true, subtree: true });
