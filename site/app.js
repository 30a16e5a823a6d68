// Shows that scripts run and that a second request is answered. The pages need neither.
"use strict";

const show = (id, text) => {
  const place = document.getElementById(id);
  if (place) place.textContent = text;
};

document.documentElement.dataset.js = "ran";
show("js", "ran");

fetch("/data.json")
  .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(`status ${answer.status}`))))
  .then((data) => {
    document.documentElement.dataset.json = data.name;
    show("json", `${data.name}, ${data.steps.length} steps`);
  })
  .catch((error) => show("json", `failed: ${error.message}`));
